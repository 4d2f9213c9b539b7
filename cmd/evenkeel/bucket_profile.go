package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/internal/trial"
	"github.com/evenkeel/evenkeel/train"
)

type bucketProfileCmd struct {
	Lengths  []int         `help:"Lengths to try; the longest of each bucket." required:"" placeholder:"L,..."`
	Batches  []int         `help:"Batch sizes of a grid; the largest bounds a bisection." default:"1,2,4,8,16,32,64,128,256,512,1024" placeholder:"B,..."`
	Method   string        `help:"${enum}: double, then bisect, at most 8 trials a length; or every combination." enum:"bisect,grid" default:"bisect"`
	Limit    time.Duration `help:"Time limit of a trial." default:"10m"`
	Built    bool          `name:"built-in" help:"Train a small transformer in this process instead of a command; --memory bounds it."`
	Memory   int64         `help:"With --built-in: memory budget in bytes." default:"268435456" placeholder:"BYTES"`
	Recorded string        `help:"Replay this table instead of a command." placeholder:"FILE"`
	Out      string        `help:"Table to write; trials that are in it already are not tried again." required:"" placeholder:"FILE"`
	JSON     bool          `name:"json" help:"Print the trials as JSON."`
	Command  []string      `arg:"" optional:"" passthrough:"" help:"Command of one training step; {length} and {batch} are replaced, else appended."`
}

// Help is shown under the flags.
func (*bucketProfileCmd) Help() string {
	return `The command runs one training step, optimizer state included. The last line of its output may be {"seconds":0.12,"peak_bytes":123456}; without it
its wall time counts. Exit status 42, a kill by the system, or "out of memory" in the output of a failed command says that memory ran out.

Examples:

  evenkeel bucket profile --lengths 128,512,2048 --out table.csv -- python3 step.py {length} {batch}
  evenkeel bucket profile --lengths 32,64,128 --built-in --out table.csv
  evenkeel bucket profile --lengths 128,512 --batches 1,8,64 --method grid --out table.csv -- ./step`
}

// commandRunner joins the external command to bucket.
type commandRunner struct{ c trial.Command }

// Try is bucket.Runner's.
func (r commandRunner) Try(ctx context.Context, length, batch int) (bucket.Trial, error) {
	t, err := r.c.Run(ctx, length, batch)
	return bucket.Trial{Length: length, Batch: batch, Seconds: t.Seconds, PeakBytes: t.PeakBytes, OutOfMemory: t.OutOfMemory}, err
}

// builtRunner joins a training step of a small transformer, in this process, to bucket.
type builtRunner struct{ budget int64 }

// Try is bucket.Runner's.
func (r builtRunner) Try(_ context.Context, length, batch int) (bucket.Trial, error) {
	m, err := train.MeasureStep(train.TransformerConfig{Tokens: 256, Length: length, Size: 64, Heads: 4, Blocks: 2}, batch, r.budget)
	t := bucket.Trial{Length: length, Batch: batch, Seconds: m.Seconds, PeakBytes: m.PeakBytes}
	if errors.Is(err, train.ErrOutOfMemory) {
		t.OutOfMemory, err = true, nil
	}
	return t, err
}

// Run is kong's.
func (c *bucketProfileCmd) Run(a *app) error {
	if slices.Min(c.Lengths) < 1 || slices.Max(c.Lengths) > bucket.MaxLength {
		return badInputf("--lengths: must be 1 to %d", bucket.MaxLength)
	}
	if len(c.Batches) == 0 || slices.Min(c.Batches) < 1 {
		return badInputf("--batches: must be at least 1")
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	var r bucket.Runner
	switch {
	case c.Built && (c.Recorded != "" || len(c.Command) > 0):
		return badInputf("--built-in has no effect with a command or --recorded; leave one out")
	case c.Built && c.Memory < 1:
		return badInputf("--memory %d: must be at least 1", c.Memory)
	case c.Built:
		r = builtRunner{c.Memory}
	case c.Recorded != "" && len(c.Command) > 0:
		return badInputf("--recorded has no effect with a command; leave one out")
	case c.Recorded != "":
		t, err := readTable(c.Recorded)
		if err != nil {
			return err
		}
		r = bucket.Recorded(t)
	case len(c.Command) == 0:
		return badInput(errNoCommand)
	default:
		r = commandRunner{trial.Command{Args: c.Command, Limit: c.Limit}}
	}
	var known bucket.Table
	if t, err := readTable(c.Out); err == nil {
		known = t
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	tell, clear := a.progress("profile")
	total := len(c.Lengths) * 8
	if c.Method == bucket.Grid {
		total = len(c.Lengths) * len(c.Batches)
	}
	done := 0
	save := func() error {
		return a.writeWhole(c.Out, func(w fileWriter) error {
			lines := []string{bucket.TableHeader}
			for _, t := range known {
				lines = append(lines, t.Row())
			}
			return printLines(w, lines)
		})
	}
	err := bucket.Profile(a.ctx, r, c.Method, c.Lengths, c.Batches, known, func(t bucket.Trial) error {
		known = append(known, t)
		done++
		tell(done, max(done, total))
		return save()
	})
	clear()
	if errors.Is(err, context.Canceled) {
		return &interruption{err, fmt.Sprintf("interrupted; %s keeps %s; the same command goes on", c.Out, count(len(known), "trial"))}
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return a.writeJSON(map[string]any{"trials": known})
	}
	var rows [][]string
	for _, t := range known {
		s := "out of memory"
		if !t.OutOfMemory {
			s = seconds(t.Seconds)
		}
		rows = append(rows, append(strings.Split(t.Row(), ",")[:2], s, fmt.Sprint(t.PeakBytes)))
	}
	return printLines(a.out, table([]column{{"length", true}, {"batch", true}, {"time", true}, {"peak bytes", true}}, rows))
}
