package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/bucket/plain"
	"evenkeel/bucket/stepcost"
	"evenkeel/bucket/trial"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

type profileCmd struct {
	lengthsFlags
	deviceFlags
	At      []int         `help:"Lengths to try instead of --lengths." placeholder:"N"`
	Buckets int           `help:"With --lengths: divide them into this many buckets of equal total length and try the longest of each. Default: ${default}." default:"16"`
	Timeout time.Duration `help:"Limit per trial; one that takes longer counts as out of memory. Default: ${default}." default:"10m"`
	Out     string        `help:"Table to write, a line after each trial." required:"" placeholder:"FILE"`
	Resume  bool          `help:"Continue the table in --out; its trials are not repeated."`
	JSON    bool          `help:"Print JSON."`
	Command []string      `arg:"" optional:"" passthrough:"partial" help:"Command that runs one training step. {length} and {batch} are replaced; without either, both are appended as arguments. With --pair apart: {source}, {target} and {batch}."`
}

// Help is what --help adds.
func (*profileCmd) Help() string {
	return `The command runs one training step with optimizer state in memory and prints {"seconds":0.12,"peak_bytes":1000000} as its last line
(peak_bytes is optional). It is out of memory if it exits with status 77, fails with "out of memory" in its output, as
PyTorch does, or is killed.

Examples:

  evenkeel bucket profile --lengths lengths.txt --out table.csv -- python3 step.py
  evenkeel bucket profile --at 128,512,2048 --out table.csv -- ./step --len={length} --bs={batch}
  evenkeel bucket profile --lengths lengths.txt --out table.csv --resume -- python3 step.py`
}

// Run runs the command.
func (c *profileCmd) Run(a *cli.App) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if err := c.check(); err != nil {
		return err
	}
	p := stepcost.Profiling{Lengths: c.At, PadTo: c.PadTo, BatchMultiple: c.BatchMultiple}
	if c.Lengths != "" {
		l, pairs, err := c.lengthsFlags.read(a)
		if err != nil {
			return err
		}
		if pairs != nil {
			p.Lengths, p.Targets, err = pairs.Uppers(c.Buckets)
		} else {
			p.Lengths, err = plain.Uppers(l, c.Buckets)
		}
		if err != nil {
			return fmt.Errorf("--buckets: %w", err)
		}
	}
	run := &trial.Command{Args: c.Command, Timeout: c.Timeout}
	out, err := trial.OpenTable(c.Out, c.Resume)
	if errors.Is(err, trial.ErrExists) {
		return badinput.Errorf("--out: %s exists already; continue it with --resume, or choose another name", c.Out)
	}
	if err != nil {
		return cli.FileError(err)
	}
	defer out.Close()
	p.Done, p.Record = out.Done, out.Add
	if others := p.Foreign(); c.Lengths != "" && len(others) > 0 {
		a.Log.Warn().Msgf("%s has trials of %s that %s does not ask for (%s): they stay in the table; if they are of another model, choose another --out",
			c.Out, cli.Count(len(others), "length"), c.Lengths, several(others))
	}
	report, clear := a.Progress("profiling")
	defer clear()
	p.Progress = report
	t, err := stepcost.Profile(a.Ctx, run.Run, p)
	clear()
	if errors.Is(err, context.Canceled) {
		return cli.Interrupted(err, fmt.Sprintf("interrupted; the trials so far are in %s; continue with --resume", c.Out))
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(t, func(r stepcost.Trial) bool { return !r.OutOfMemory }) {
		return errors.Join(c.noneRan(t, run.Last(), len(p.Done)), out.Discard())
	}
	if err := out.Finish(t); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(struct {
			Trials  stepcost.Table `json:"trials"`
			New     int            `json:"new_trials"`
			Out     string         `json:"out"`
			Columns *columns       `json:"lengths_columns,omitempty"`
		}{t, len(t) - len(p.Done), c.Out, c.chosen})
	}
	return c.print(a, t, len(p.Done))
}

// check looks at the flags before any work.
func (c *profileCmd) check() error {
	switch {
	case len(c.Command) == 0:
		return badinput.Errorf("nothing to run: add the command of a training step after --")
	case c.At != nil && c.Pair == apart:
		return badinput.Errorf("--at: lengths of one kind; with --pair apart give --lengths instead, and with --buckets how many pairs of lengths to try")
	case (c.Lengths == "") == (c.At == nil):
		return badinput.Errorf("lengths: give either --lengths or --at")
	case c.Timeout <= 0:
		return badinput.Errorf("--timeout: %s; must be above 0", c.Timeout)
	}
	return cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths)}, []cli.File{cli.FileFlag("--out", c.Out)})
}

func (c *profileCmd) print(a *cli.App, t stepcost.Table, before int) error {
	c.printColumns(a.Out)
	var rows [][]string
	for i := 0; i < len(t); {
		l, n, best := t[i], 0, stepcost.Trial{}
		for ; i < len(t) && t[i].Length == l.Length && t[i].Target == l.Target; i++ {
			if n++; !t[i].OutOfMemory {
				best = t[i]
			}
		}
		row := []string{strconv.Itoa(l.Length), strconv.Itoa(n), "none", ""}
		if l.Target > 0 {
			row[0] += ", " + strconv.Itoa(l.Target)
		}
		if best.Batch > 0 {
			row[2], row[3] = strconv.Itoa(best.Batch), cli.Seconds(best.Seconds)
		}
		rows = append(rows, row)
	}
	heading := "length"
	if t.Pairs() {
		heading = "source, target"
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right(heading), cli.Right("trials"), cli.Right("largest batch"), cli.Right("time")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\n%s, %d of them new, in %s.\n", cli.Count(len(t), "trial"), len(t)-before, c.Out)
	return nil
}

// several shows a few of many numbers.
func several(of []int) string {
	text := strings.Trim(fmt.Sprint(of[:min(len(of), 4)]), "[]")
	if text = strings.ReplaceAll(text, " ", ", "); len(of) > 4 {
		text += ", ..."
	}
	return text
}

// noneRan is the error where even the least trial was out of memory: more likely the command is at fault than the memory.
func (c *profileCmd) noneRan(t stepcost.Table, last string, before int) error {
	least := slices.MinFunc(t, func(a, b stepcost.Trial) int {
		return cmp.Or(cmp.Compare(a.Length+a.Target, b.Length+b.Target), cmp.Compare(a.Batch, b.Batch))
	})
	shape := fmt.Sprintf("length %d", least.Length)
	if least.Target > 0 {
		shape = fmt.Sprintf("source %d, target %d", least.Length, least.Target)
	}
	why := ""
	if last != "" {
		why = "; the last was " + last
	}
	if before > 0 {
		why += "; remove " + c.Out + " before you try again: its trials are not repeated"
	}
	return fmt.Errorf("no trial ran, not even a batch of %d of %s%s", least.Batch, shape, why)
}
