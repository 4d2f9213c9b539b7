package bucket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train"
)

// profileCmd runs trials.
type profileCmd struct {
	lengthsFlags
	At       []int         `help:"Lengths to try instead of --lengths." placeholder:"N,..."`
	Buckets  int           `help:"With --lengths: try the longest of so many buckets of equal total length. Default: ${default}." default:"16"`
	Grid     []int         `help:"Full grid: try these batch sizes at every length. Default: double, then bisect, at most 8 trials a length." placeholder:"B,..."`
	MaxBatch int           `help:"Largest batch of the search. Default: ${default}." default:"4096"`
	Recorded string        `help:"Take the trials from this table instead of running a command." placeholder:"FILE"`
	BuiltIn  bool          `name:"built-in" help:"Train a small transformer in this process instead of running a command, within --memory."`
	Memory   int64         `help:"With --built-in: its memory budget in bytes. Default: ${default}." default:"268435456" placeholder:"BYTES"`
	Timeout  time.Duration `help:"Limit per trial; one that takes longer counts as out of memory. Default: ${default}." default:"10m"`
	OOMExit  int           `help:"Exit status of the command that says out of memory. Default: ${default}." default:"77"`
	Out      string        `help:"Table to write; a trial a line, as soon as it ran." required:"" placeholder:"FILE"`
	Resume   bool          `help:"Go on with the table in --out; its trials are not run again."`
	JSON     bool          `help:"Print JSON."`
	Command  []string      `arg:"" optional:"" passthrough:"" help:"Command of one training step. {length} and {batch} are replaced in it; without them both are added as arguments."`
}

// Help is shown under the flags.
func (*profileCmd) Help() string {
	return `The command runs one training step with optimizer state in memory and prints {"seconds":0.12,"peak_bytes":1000000} as its last line
(peak_bytes may be left out). It says out of memory by its exit status, or by failing with "out of memory" in its output, as PyTorch does; a killed command counts too.

Examples:

  evenkeel bucket profile --lengths lengths.txt --out table.csv -- python3 step.py
  evenkeel bucket profile --at 128,512,2048 --grid 1,2,4,8,16,32 --out table.csv -- ./step --len={length} --bs={batch}
  evenkeel bucket profile --lengths lengths.txt --out table.csv --resume -- python3 step.py
  evenkeel bucket profile --at 16,32,64 --built-in --out table.csv     # without a model of yours`
}

// Run is kong's.
func (c *profileCmd) Run(a *cli.App) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case c.BuiltIn && (len(c.Command) > 0 || c.Recorded != ""):
		return badinput.Errorf("--built-in runs a training step of its own; leave it, or the command or --recorded, out")
	case c.BuiltIn && c.Memory < 1:
		return badinput.Errorf("--memory: %d; must be above 0", c.Memory)
	case len(c.Command) == 0 && c.Recorded == "" && !c.BuiltIn:
		return badinput.Errorf("what to run? Add the command of a training step after --, or --recorded, or --built-in")
	case len(c.Command) > 0 && c.Recorded != "":
		return badinput.Errorf("--recorded: runs no command; leave it, or --recorded, out")
	case (c.Lengths == "") == (c.At == nil):
		return badinput.Errorf("which lengths? Give either --lengths or --at")
	case c.Timeout <= 0:
		return badinput.Errorf("--timeout: %s; must be above 0", c.Timeout)
	}
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths), cli.FileFlag("--recorded", c.Recorded)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	p := stepcost.Profiling{Lengths: c.At, Batches: c.Grid, MaxBatch: c.MaxBatch}
	if c.Lengths != "" {
		l, err := c.lengthsFlags.read(a)
		if err != nil {
			return err
		}
		if p.Lengths, err = l.Uppers(c.Buckets); err != nil {
			return fmt.Errorf("--buckets: %w", err)
		}
	}
	run, err := c.runner()
	if err != nil {
		return err
	}
	out, done, err := c.open()
	if err != nil {
		return err
	}
	defer out.Close()
	p.Done = done
	tell, clear := a.Progress("profiling")
	defer clear()
	p.Progress = tell
	kept := len(done)
	p.Record = func(t stepcost.Trial) error {
		kept++
		_, err := fmt.Fprintln(out, t.Row())
		return errors.Join(err, out.Sync())
	}
	t, err := stepcost.Profile(a.Ctx, run, p)
	clear()
	if err != nil && kept == 0 {
		_ = os.Remove(c.Out) // a table without a trial is of no use
	}
	if errors.Is(err, context.Canceled) {
		return cli.Interrupted(err, fmt.Sprintf("interrupted; the trials so far are in %s, --resume goes on", c.Out))
	}
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	err = cli.WriteFile(c.Out, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, stepcost.TableHeader)
		for _, r := range t {
			_, e := fmt.Fprintln(w, r.Row())
			err = errors.Join(err, e)
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(struct {
			Trials stepcost.Table `json:"trials"`
			New    int            `json:"new_trials"`
			Out    string         `json:"out"`
		}{t, len(t) - len(done), c.Out})
	}
	return c.print(a, t, len(done))
}

func (c *profileCmd) print(a *cli.App, t stepcost.Table, before int) error {
	var rows [][]string
	for i := 0; i < len(t); {
		l, n, best := t[i].Length, 0, stepcost.Trial{}
		for ; i < len(t) && t[i].Length == l; i++ {
			if n++; !t[i].OutOfMemory {
				best = t[i]
			}
		}
		row := []string{strconv.Itoa(l), strconv.Itoa(n), "none", ""}
		if best.Batch > 0 {
			row[2], row[3] = strconv.Itoa(best.Batch), cli.Seconds(best.Seconds)
		}
		rows = append(rows, row)
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("length"), cli.Right("trials"), cli.Right("largest batch"), cli.Right("time")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\n%s, %d of them new, in %s.\n", cli.Count(len(t), "trial"), len(t)-before, c.Out)
	return nil
}

func (c *profileCmd) runner() (stepcost.Runner, error) {
	if c.BuiltIn {
		return builtIn{c.Memory}, nil
	}
	if c.Recorded == "" {
		return &stepCommand{c.Command, c.Timeout, c.OOMExit}, nil
	}
	f, err := os.Open(c.Recorded)
	if err != nil {
		return nil, cli.FileError(err)
	}
	defer f.Close()
	t, err := stepcost.ReadTable(f, c.Recorded)
	return stepcost.Recorded(t), err
}

// open makes the table, or reads the one that is there; a last line that a kill cut is
// left out.
func (c *profileCmd) open() (*os.File, stepcost.Table, error) {
	data, err := os.ReadFile(c.Out)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(data) == 0:
		f, err := os.OpenFile(c.Out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, stepcost.TableHeader)
		}
		return f, nil, err
	case err != nil:
		return nil, nil, cli.FileError(err)
	case !c.Resume:
		return nil, nil, badinput.Errorf("--out: %s is there already; --resume goes on with it", c.Out)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	var t stepcost.Table
	if bytes.Count(whole, []byte("\n")) > 1 {
		if t, err = stepcost.ReadTable(bytes.NewReader(whole), c.Out); err != nil {
			return nil, nil, err
		}
	} else {
		whole = []byte(stepcost.TableHeader + "\n")
	}
	if err := os.WriteFile(c.Out, whole, 0o644); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_APPEND, 0)
	return f, t, err
}

// builtIn is a Runner that trains a small transformer in this process.
type builtIn struct{ memory int64 }

// Run is stepcost.Runner's.
func (b builtIn) Run(_ context.Context, length, batch int) (stepcost.Trial, error) {
	m, err := train.MeasureStep(train.TransformerConfig{Tokens: 256, Length: length, Size: 64, Heads: 4, Blocks: 2}, batch, b.memory)
	if errors.Is(err, train.ErrOutOfMemory) {
		return stepcost.Trial{Length: length, Batch: batch, OutOfMemory: true}, nil
	}
	return stepcost.Trial{Length: length, Batch: batch, Seconds: m.Seconds, PeakBytes: m.PeakBytes}, err
}

// stepCommand is a Runner that runs the user's command.
type stepCommand struct {
	args    []string
	timeout time.Duration
	oomExit int
}

// Run is stepcost.Runner's.
func (s *stepCommand) Run(ctx context.Context, length, batch int) (stepcost.Trial, error) {
	limited, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	values := strings.NewReplacer("{length}", strconv.Itoa(length), "{batch}", strconv.Itoa(batch))
	var args []string
	for _, v := range s.args {
		args = append(args, values.Replace(v))
	}
	if slices.Equal(args, s.args) {
		args = append(args, strconv.Itoa(length), strconv.Itoa(batch))
	}
	cmd := exec.CommandContext(limited, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var out, errs lastOutput
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	t := stepcost.Trial{Length: length, Batch: batch, OutOfMemory: true}
	exit := (*exec.ExitError)(nil)
	said := strings.ToLower(string(out) + string(errs))
	switch {
	case ctx.Err() != nil:
		return t, ctx.Err()
	case limited.Err() != nil:
		return t, nil // too long to be of use
	case errors.As(err, &exit):
		if exit.ExitCode() == s.oomExit || exit.ExitCode() == 137 || exit.ExitCode() == -1 || strings.Contains(said, "out of memory") {
			return t, nil
		}
		return t, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(string(errs)))
	case err != nil:
		return t, badinput.Wrap(err)
	}
	var report struct {
		Seconds   float64 `json:"seconds"`
		PeakBytes int64   `json:"peak_bytes"`
	}
	last := lastLine(string(out))
	if err := json.Unmarshal([]byte(last), &report); err != nil || report.Seconds <= 0 || report.PeakBytes < 0 {
		return t, fmt.Errorf(`%s: its last line is %q; want {"seconds":S,"peak_bytes":N}`, strings.Join(args, " "), last)
	}
	t.Seconds, t.PeakBytes, t.OutOfMemory = report.Seconds, report.PeakBytes, false
	return t, nil
}

// lastOutput keeps the last 64 KiB of what is written to it.
type lastOutput []byte

func (t *lastOutput) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	if n := len(*t) - 64<<10; n > 0 {
		*t = append((*t)[:0], (*t)[n:]...)
	}
	return len(b), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
