package bucket

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"evenkeel/bucket"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/chart"
)

type simulateCmd struct {
	lengthsFlags
	tableFlags
	ranksFlags
	deviceFlags
	Schedule string `help:"Schedule file, by evenkeel or by another system in the same format." required:"" placeholder:"FILE"`
	Plot     string `help:"Draw the step times of each rank, as SVG." placeholder:"FILE"`
	JSON     bool   `help:"Print JSON."`
}

// Help is what --help adds.
func (*simulateCmd) Help() string {
	return `The epoch is the sum over steps of the slowest rank's time. anchors and plan_seconds are those of a plan made here for comparison.

Examples:

  evenkeel bucket simulate --schedule epoch0.jsonl --lengths lengths.txt --table table.csv --plot steps.svg
  evenkeel bucket simulate --schedule other.jsonl --lengths lengths.txt --table table.csv --speeds 1,2,4 --json`
}

// Run runs the command.
func (c *simulateCmd) Run(a *cli.App) error {
	f, err := c.config()
	if err != nil {
		return err
	}
	files := cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths), cli.FileFlag("--table", c.Table), cli.FileFlag("--schedule", c.Schedule)}, []cli.File{cli.FileFlag("--plot", c.Plot)})
	if err := errors.Join(cli.CheckPlot(c.Plot), files); err != nil {
		return err
	}
	file, err := os.Open(c.Schedule)
	if err != nil {
		return cli.FileError(err)
	}
	defer file.Close()
	r, err := bucket.NewScheduleReader(file, c.Schedule)
	if err != nil {
		return err
	}
	if r.Header.Pairs && c.Pair != apart {
		return badinput.Errorf("%s: the schedule is of samples with two lengths: give both columns, with --pair apart", c.Schedule)
	}
	in, err := readData(a, &c.tableFlags, &c.lengthsFlags)
	if err != nil {
		return err
	}
	l := in.lengths
	f.PadTo, f.BatchMultiple = c.PadTo, c.BatchMultiple
	if err := c.match(&f, r.Header, &in); err != nil {
		return err
	}
	begun := time.Now()
	planner, err := in.plan(f)
	if err != nil {
		return err
	}
	took, p := time.Since(begun).Seconds(), planner.File()
	times := make([][]float64, r.Header.Ranks)
	limit := r.Header.Limit // to which longer samples are cut; of two lengths none is
	if c.Pair == apart {
		limit = 0
	}
	s, err := bucket.Judge(l, r.All(), planner.Cost(), f.Speeds, limit, func(_ int, perRank []float64) {
		if c.Plot != "" {
			for k, v := range perRank {
				times[k] = append(times[k], v)
			}
		}
	})
	if err != nil {
		return err
	}
	s.Skipped = r.Header.Skipped
	s.Lost = max(0, s.Lost-s.Skipped)
	if c.Plot != "" {
		if err := stepPlot(times).Save(c.Plot); err != nil {
			return fmt.Errorf("--plot: %s is not written: %w", c.Plot, err)
		}
		a.Log.Info().Str("file", c.Plot).Msg("figure written")
	}
	if c.JSON {
		return a.WriteJSON(planned{Score: s, LowerBoundSeconds: p.LowerBoundSeconds, Anchors: p.Anchors, PlanSeconds: took, Mixing: p.Mixing, Samples: len(l), Ranks: r.Header.Ranks, Columns: c.chosen})
	}
	c.printColumns(a.Out)
	printScore(a, s, p.LowerBoundSeconds)
	fmt.Fprintf(a.Out, "A plan made here for comparison: %s, made in %s.\n", cli.Seconds(p.EpochSeconds), cli.Seconds(took))
	return nil
}

// match completes a configuration from a schedule's header, or reports how they differ.
func (c *simulateCmd) match(f *bucket.Config, h bucket.Header, in *data) error {
	sum := in.lengths.Checksum()
	if in.pairs != nil {
		sum = in.pairs.Checksum()
	}
	if h.Data != "" && h.Data != sum || h.Samples != len(in.lengths) {
		return badinput.Errorf("%s: the schedule is for other lengths (%d samples; --lengths has %d)", c.Schedule, h.Samples, len(in.lengths))
	}
	if n := max(f.Ranks, len(f.Speeds)); n != 0 && n != h.Ranks {
		return badinput.Errorf("%s: has %d ranks; the flags say %d", c.Schedule, h.Ranks, n)
	}
	if f.Speeds == nil {
		f.Speeds = slices.Repeat([]float64{1}, h.Ranks)
	}
	f.Ranks = h.Ranks
	if h.Limit > 0 && in.pairs == nil {
		f.Overlong = bucket.Truncate
	}
	if h.Skipped > 0 {
		f.Overlong = bucket.Skip
	}
	return nil
}

// stepPlot draws the step times of ranks, thinned out to what a figure can show, and the
// slowest of each step.
func stepPlot(times [][]float64) chart.Figure {
	panel := chart.Panel{XLabel: "step", YLabel: "seconds", ZeroY: true}
	const most = 500 // steps
	every := max(1, len(times[0])/most)
	draw := func(name string, at func(step int) float64, kind chart.Kind) {
		s := chart.Series{Name: name, Kind: kind}
		for i := 0; i < len(times[0]); i += every {
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, at(i))
		}
		panel.Series = append(panel.Series, s)
	}
	for k := range times[:min(len(times), 8)] {
		draw(fmt.Sprintf("rank %d", k), func(i int) float64 { return times[k][i] }, chart.Points)
	}
	draw("slowest", func(i int) float64 {
		most := 0.0
		for _, t := range times {
			most = max(most, t[i])
		}
		return most
	}, chart.Line)
	waits := chart.Series{Name: "longest", Kind: chart.Points}
	mean := chart.Series{Name: "mean over ranks", Kind: chart.Line}
	for i := 0; i < len(times[0]); i += every {
		least, most, sum := times[0][i], 0.0, 0.0
		for _, t := range times {
			least, most, sum = min(least, t[i]), max(most, t[i]), sum+t[i]
		}
		if most > 0 {
			waits.X, waits.Y = append(waits.X, float64(i)), append(waits.Y, 100*(1-least/most))
			mean.X, mean.Y = append(mean.X, float64(i)), append(mean.Y, 100*(1-sum/most/float64(len(times))))
		}
	}
	waiting := chart.Panel{Title: "Waiting for the slowest", XLabel: "step", YLabel: "% of the step", ZeroY: true, Series: []chart.Series{waits, mean}}
	return chart.Figure{Title: "Step times", Panels: []chart.Panel{panel, waiting}}
}
