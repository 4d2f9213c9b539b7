package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/checkpoint/bench"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

type benchCmd struct {
	Dir     string        `help:"Folder on the disk to measure (${default})." default:"." placeholder:"FOLDER"`
	Size    string        `help:"Size of a checkpoint (${default}); the disk needs space for eight times that." default:"256MiB" placeholder:"SIZE"`
	Layers  int           `help:"Layers (${default})." default:"48" placeholder:"N"`
	Trials  int           `help:"Trials of every comparison (${default})." default:"5" placeholder:"N"`
	Workers int           `help:"Goroutines that compute in a training step (${default}); 1 is as if a device computed." default:"1" placeholder:"N"`
	Time    time.Duration `help:"Begin no new trial after this time; at least one of each kind is run (${default})." default:"5m" placeholder:"DURATION"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*benchCmd) Help() string {
	return `Measures plain writes and reads in turn with checkpoints; then runs training steps that take twice as long as a save, with
each way of saving in turn. Ratios are medians over the trials. Ctrl-C prints the results of the trials that are complete.

Examples:

  evenkeel checkpoint bench --dir /data
  evenkeel checkpoint bench --size 1GiB --trials 9 --json`
}

// Run runs the command.
func (b *benchCmd) Run(a *cli.App) error {
	size, err := humanize.ParseBytes(b.Size)
	if err != nil || size > 1<<40 {
		return badinput.Errorf("--size: %q is not a size up to 1 TiB, such as 256MiB", b.Size)
	}
	if b.Time <= 0 {
		return badinput.Errorf("--time: %v must be above 0", b.Time)
	}
	report, clear := a.ProgressAfter(0, "measuring")
	defer clear()
	c := bench.Config{Folder: b.Dir, Bytes: int64(size), Layers: b.Layers, Trials: b.Trials, Workers: b.Workers, Limit: b.Time, Progress: report}
	if b.Layers < 1 || b.Trials < 1 || b.Workers < 1 || size == 0 {
		return badinput.Errorf("--size, --layers, --trials and --workers must be at least 1")
	}
	if err := c.Validate(); err != nil {
		return badinput.Wrap(err)
	}
	r, err := bench.Run(a.Ctx, c)
	if err != nil && len(r.Write) == 0 {
		return cli.FileError(err)
	}
	clear()
	if b.JSON {
		return errors.Join(a.WriteJSON(r), err)
	}
	return errors.Join(cli.PrintLines(a.Out, benchLines(r)), err)
}

func benchLines(r bench.Result) []string {
	speed := func(s float64) string { return humanize.Bytes(uint64(float64(r.Bytes)/s)) + "/s" }
	lines := []string{fmt.Sprintf("%s in %d layers, %d trials", humanize.IBytes(uint64(r.Bytes)), r.Layers, r.Trials), ""}
	for _, t := range []struct {
		title string
		times map[string]float64
	}{{"write, durable", r.Write}, {"read, nothing cached", r.Read}} {
		var rows [][]string
		for _, name := range slices.SortedFunc(maps.Keys(t.times), func(x, y string) int {
			if t.times[x] < t.times[y] {
				return -1
			}
			return 1
		}) {
			rows = append(rows, []string{name, cli.Seconds(t.times[name]), speed(t.times[name])})
		}
		lines = append(append(lines, cli.Table([]cli.Column{cli.Left(t.title), cli.Right("time"), cli.Right("speed")}, rows)...), "")
	}
	if r.Partial != "" {
		lines = append(lines, r.Partial, "")
	}
	ratio := func(v float64) string { return fmt.Sprintf("%.3f", v) }
	wait := func(v float64) string { return fmt.Sprintf("%.2f%%", 100*v) }
	lines = append(lines,
		"persist over the disk's limit   "+ratio(r.PersistOverLimit),
		"restore over the disk's limit   "+ratio(r.RestoreOverLimit), "")
	if len(r.StepTrials) == 0 {
		return append(lines, "no trial of training steps was complete")
	}
	lines = append(lines, cli.Table([]cli.Column{cli.Left("saved"), cli.Right("step ratio"), cli.Right("waiting"), cli.Right("memory")}, [][]string{
		{"every step, synchronous", ratio(r.StepRatioSync), "", ""},
		{"every step, staged", ratio(r.StepRatioStaged), wait(r.WaitShareStaged), humanize.IBytes(uint64(r.StagingBytes))},
		{"every step, zero-copy", ratio(r.StepRatioZeroCopy), wait(r.WaitShareZeroCopy), "0 B"},
		{"every step, zero-copy, past the page cache", ratio(r.StepRatioDirect), "", "0 B"},
		{"at the interval, zero-copy", ratio(r.StepRatioInterval), "", "0 B"},
	})...)
	return append(lines, "", fmt.Sprintf("recommended interval            %d steps of %s (the fewest at which saving added at most 3.5%%)", r.IntervalSteps, cli.Seconds(r.StepSeconds)))
}
