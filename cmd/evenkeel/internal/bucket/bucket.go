// Package bucket holds the commands about length buckets.
package bucket

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// Cmd holds the commands about length buckets.
type Cmd struct {
	Plan     planCmd     `cmd:"" help:"Choose batch sizes per length, and how ranks share the work."`
	Schedule scheduleCmd `cmd:"" help:"Write one epoch: which rank computes which samples in which step."`
}

// ranksFlags are embedded by commands that need the number and speeds of ranks.
type ranksFlags struct {
	Ranks   *int   `help:"Number of ranks (data-parallel workers)." placeholder:"N" xor:"speeds"`
	Speeds  string `help:"Relative speed of each rank, for example 1,2,4; 1 is that of the device in the table." placeholder:"V,..." xor:"speeds"`
	Cluster string `help:"Cluster file, or an embedded cluster: its nodes are the ranks, their profiles give the speeds; the table is for the fastest." placeholder:"FILE|NAME" xor:"speeds"`
	cli.ProfileFlags
}

// config has no ranks if no flag was given.
func (f *ranksFlags) config() (bucket.Config, error) {
	var c bucket.Config
	switch {
	case f.Ranks != nil:
		if *f.Ranks < 1 {
			return c, badinput.Errorf("--ranks: %d; must be at least 1", *f.Ranks)
		}
		c.Ranks = *f.Ranks
	case f.Speeds != "":
		for i, s := range strings.Split(f.Speeds, ",") {
			v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil {
				return c, badinput.Errorf("--speeds: rank %d has %q; want a number above 0", i, s)
			}
			c.Speeds = append(c.Speeds, v)
		}
	case f.Cluster != "":
		catalogue, err := f.Catalogue()
		if err != nil {
			return c, err
		}
		_, _, k, err := cli.LoadCluster(f.Cluster, catalogue)
		if err != nil {
			return c, err
		}
		perf := k.Nominal()
		fastest := math.Inf(1)
		for _, p := range perf {
			fastest = min(fastest, p.PerSample)
		}
		for _, p := range perf {
			c.Speeds = append(c.Speeds, fastest/p.PerSample)
		}
	}
	return c, nil
}

type planCmd struct {
	lengthsFlags
	ranksFlags
	Table        string  `help:"Cost table, CSV with length,batch,seconds,peak_bytes (evenkeel.bucket.profile writes one); empty seconds: out of memory." required:"" placeholder:"FILE"`
	Memory       int64   `help:"Memory limit in bytes. Default: the largest peak in the table." placeholder:"BYTES"`
	PadTo        int     `help:"Lengths are padded to multiples of this, as --pad-to-multiple-of does in collators." placeholder:"N"`
	Mixing       float64 `help:"About what random order may add to an epoch: 0 sorts by length (the shortest epoch, but the same samples share steps); up to 1. Default: ${default}." default:"0.01"`
	MicroBatches int     `help:"Batches of the fastest rank in a step; slower ranks have fewer, or smaller ones. 1: at most one batch a rank. Default: the fewest, at most 8, that suit the speeds." placeholder:"N"`
	MaxSamples   int     `help:"Most samples of a step over all ranks." placeholder:"N"`
	MaxTokens    int     `help:"Most tokens of a step over all ranks, with padding." placeholder:"N"`
	Overlong     string  `help:"What to do with a sample that does not fit into memory: error, skip or truncate. Default: ${default}." enum:"error,skip,truncate" default:"error"`
	Out          string  `help:"Plan file to write." placeholder:"FILE"`
	JSON         bool    `help:"Print JSON."`
}

// Help is what --help adds.
func (*planCmd) Help() string {
	return `Batches are cut to take about the same time, the anchor duration. A step has batches of any lengths that finish together.

Examples:

  evenkeel bucket plan --lengths lengths.txt --table table.csv --ranks 8 --out plan.json
  evenkeel bucket plan --lengths pairs.csv --column en,de --pair max --table table.csv --speeds 1,1,2
  evenkeel bucket plan --lengths speech.csv --scale 100 --table table.csv --ranks 4 --pad-to 64 --max-tokens 200000 --json`
}

// planned is the JSON document of plan.
type planned struct {
	bucket.Score
	LowerBoundSeconds float64       `json:"lower_bound_seconds"`
	Anchors           []float64     `json:"anchors"`
	PlanSeconds       float64       `json:"plan_seconds"`
	Mixing            float64       `json:"mixing"`
	MeetAgain         *float64      `json:"meet_again,omitempty"`        // share of pairs in a step
	MeetAgainRandom   *float64      `json:"meet_again_random,omitempty"` // of random steps of the same sizes
	FitError          float64       `json:"fit_error"`                   // mean relative error of the seconds of the table's trials
	FitErrorWorst     float64       `json:"fit_error_worst"`             // the largest of a trial
	Samples           int           `json:"samples"`
	SamplesPerStep    float64       `json:"samples_per_step"` // over all ranks, the mean
	TokensPerStep     float64       `json:"tokens_per_step"`  // without padding
	BatchesPerStep    []int         `json:"batches_per_step"` // of each rank
	Ranks             int           `json:"ranks"`
	Bands             []bucket.Band `json:"bands"`
	Out               string        `json:"out,omitempty"`
}

// Run runs the command.
func (c *planCmd) Run(a *cli.App) error {
	f, err := c.config()
	if err != nil {
		return err
	}
	if f.Ranks == 0 && f.Speeds == nil {
		return badinput.Errorf("the number of ranks is missing: give --ranks, --speeds or --cluster")
	}
	f.Mixing, f.MicroBatches, f.MaxSamples, f.MaxTokens, f.Overlong, f.PadTo = &c.Mixing, c.MicroBatches, c.MaxSamples, c.MaxTokens, c.Overlong, c.PadTo
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths), cli.FileFlag("--table", c.Table)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	if c.Memory < 0 {
		return badinput.Errorf("--memory: %d bytes; must not be below 0", c.Memory)
	}
	t, err := readFile(c.Table, stepcost.ReadTable)
	if err != nil {
		return err
	}
	cost, err := stepcost.New(t, c.Memory)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Table, err)
	}
	l, err := c.lengthsFlags.read()
	if err != nil {
		return err
	}
	if c.Column != "" || c.Scale != 0 {
		f.Read = &bucket.Reading{Column: c.Column, Pair: c.Pair, Scale: c.Scale}
	}
	begun := time.Now()
	p, err := bucket.Make(l, cost, f)
	if err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	if c.Out != "" {
		if err := cli.WriteFile(c.Out, p.Write); err != nil {
			return err
		}
	}
	d := planned{Score: p.Score, LowerBoundSeconds: p.LowerBoundSeconds, Anchors: p.Anchors, PlanSeconds: took, Mixing: *p.Mixing,
		Samples: p.Samples, Ranks: p.Ranks, Bands: p.Bands, Out: c.Out, BatchesPerStep: p.StepBatches()}
	d.SamplesPerStep, d.TokensPerStep = p.StepSize()
	d.FitError, d.FitErrorWorst = cost.Error()
	if p.Samples <= countable {
		again, random := p.Recurrence(l, 1, 0)
		d.MeetAgain, d.MeetAgainRandom = &again, &random
	}
	if c.JSON {
		return a.WriteJSON(d)
	}
	return c.print(a, d)
}

// countable is the number of samples up to which a plan says unasked how often samples of a step meet again: counting takes long.
const countable = 5_000_000

func (c *planCmd) print(a *cli.App, p planned) error {
	rows := make([][]string, 0, len(p.Bands))
	from := 1
	for _, b := range p.Bands {
		lengths := strconv.Itoa(b.Upper)
		if from < b.Upper {
			lengths = fmt.Sprintf("%d-%d", from, b.Upper)
		}
		rows = append(rows, []string{lengths, strconv.Itoa(b.Samples), strconv.Itoa(b.Batch), cli.Seconds(b.Seconds)})
		from = b.Upper + 1
	}
	heads := []cli.Column{cli.Left("lengths"), cli.Right("samples"), cli.Right("batch of the longest"), cli.Right("predicted")}
	if err := cli.PrintLines(a.Out, cli.Table(heads, rows)); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	fmt.Fprintf(a.Out, "Epoch %s in %s, %.4f of the lower bound %s.\n", cli.Seconds(p.EpochSeconds), cli.Count(p.Steps, "step"), p.EpochSeconds/p.LowerBoundSeconds, cli.Seconds(p.LowerBoundSeconds))
	fmt.Fprintf(a.Out, "Imbalance %.4f (p99 of a step %.4f), padding %.3f%%, skipped %d.\n", p.Imbalance, p.ImbalanceP99, 100*p.Padding, p.Skipped)
	fmt.Fprintf(a.Out, "A step has %.0f samples and %.0f tokens over all ranks, in the mean.\n", p.SamplesPerStep, p.TokensPerStep)
	if slices.Max(p.BatchesPerStep) > 1 {
		fmt.Fprintf(a.Out, "Batches a step, by rank: %s; a rank adds up their gradients; with --micro-batches 1 every rank has one, and steps are smaller.\n", strings.Trim(fmt.Sprint(p.BatchesPerStep), "[]"))
	}
	fmt.Fprintln(a.Out, "These figures are for one predicted epoch. Other epochs have some steps more or fewer; the smaller the data set, the more they differ.")
	if p.MeetAgain != nil {
		fmt.Fprintf(a.Out, "Mixing %v: of the pairs of samples in a step %.1f%% meet again in the next epoch; in random steps %.1f%%.\n", p.Mixing, 100**p.MeetAgain, 100**p.MeetAgainRandom)
	}
	fmt.Fprintf(a.Out, "Predicted by a fit that is %.1f%% off the table's trials, at worst %.1f%%. Planned %s in %s.\n", 100*p.FitError, 100*p.FitErrorWorst, cli.Count(p.Samples, "sample"), cli.Seconds(p.PlanSeconds))
	if c.Out != "" {
		fmt.Fprintf(a.Out, "Written to %s. Next: evenkeel bucket schedule --plan %s --lengths %s --out schedule.jsonl\n", c.Out, c.Out, c.Lengths)
	}
	return nil
}
