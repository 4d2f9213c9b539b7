// Package bucket holds the commands about length buckets.
package bucket

import (
	"fmt"
	"maps"
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
	Profile  profileCmd  `cmd:"" help:"Time training steps of several lengths and batch sizes."`
	Plan     planCmd     `cmd:"" help:"Choose batch sizes per length, and how ranks share the work."`
	Schedule scheduleCmd `cmd:"" help:"Write one epoch: which rank computes which samples in which step."`
	Simulate simulateCmd `cmd:"" help:"Score a schedule against a cost table."`
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

// deviceFlags are embedded by commands that predict, and by profile.
type deviceFlags struct {
	PadTo         int `help:"Lengths are padded to multiples of this, as --pad-to-multiple-of does in collators." placeholder:"N"`
	BatchMultiple int `help:"The device computes batches in multiples of this: other sizes take as long as the next multiple." placeholder:"N"`
}

type planCmd struct {
	lengthsFlags
	tableFlags
	ranksFlags
	deviceFlags
	Mixing       float64 `help:"How random the order is: 0 sorts by length (the shortest epoch, but the same samples share steps), 1 is the random order. Default: ${default}." default:"0.2"`
	MicroBatches int     `help:"Batches of the fastest rank in a step; slower ranks have fewer, or smaller ones. 1: at most one batch a rank. Default: its speed over that of the rank at the lower quartile, at most 8." placeholder:"N"`
	MaxSamples   int     `help:"Most samples of a step over all ranks." placeholder:"N"`
	MaxTokens    int     `help:"Most tokens of a step over all ranks, with padding." placeholder:"N"`
	Overlong     string  `help:"What to do with a sample that does not fit into memory: error, skip or truncate. Default: ${default}." enum:"error,skip,truncate" default:"error"`
	Curve        bool    `help:"Print what other choices of --mixing cost, and how much they mix."`
	Out          string  `help:"Plan file to write." placeholder:"FILE"`
	JSON         bool    `help:"Print JSON."`
}

// Help is what --help adds.
func (*planCmd) Help() string {
	return `Batches are cut to take about the same time, the anchor duration. A step has batches of any lengths that finish together. With
--pair apart, batches are cut for the least work instead if that makes the epoch shorter; the output then says so.

Examples:

  evenkeel bucket plan --lengths lengths.txt --table table.csv --ranks 8 --out plan.json
  evenkeel bucket plan --lengths pairs.csv --column en,de --pair max --table table.csv --speeds 1,1,2 --curve
  evenkeel bucket plan --lengths speech.csv --scale 100 --table table.csv --ranks 4 --pad-to 64 --max-tokens 200000 --json
  evenkeel bucket plan --lengths pairs.csv --column en,de --pair apart --table pairs-table.csv --ranks 8 --out plan.json`
}

// planned is the JSON document of plan and simulate.
type planned struct {
	bucket.Score
	LowerBoundSeconds float64        `json:"lower_bound_seconds"`
	Anchors           []float64      `json:"anchors"`
	PlanSeconds       float64        `json:"plan_seconds"`
	Mixing            float64        `json:"mixing"`
	Pairs             bool           `json:"pairs,omitempty"`
	FreeCut           bool           `json:"free_cut,omitempty"`
	MeetAgain         *float64       `json:"meet_again,omitempty"`        // share of pairs in a step
	MeetAgainRandom   *float64       `json:"meet_again_random,omitempty"` // of random steps of the same sizes
	Curve             []curvePoint   `json:"curve,omitempty"`
	Prediction        string         `json:"prediction,omitempty"`
	Tile              int            `json:"tile,omitempty"`
	Held              *stepcost.Held `json:"held_out,omitempty"` // how well the table predicts lengths that it does not have
	Samples           int            `json:"samples"`
	SamplesPerStep    float64        `json:"samples_per_step,omitempty"` // over all ranks, the mean
	TokensPerStep     float64        `json:"tokens_per_step,omitempty"`  // without padding; of pairs, of the targets
	BatchesPerStep    []int          `json:"batches_per_step,omitempty"` // of each rank
	Columns           *columns       `json:"lengths_columns,omitempty"`  // where none was named
	Ranks             int            `json:"ranks"`
	Bands             []bucket.Band  `json:"bands,omitempty"`
	Out               string         `json:"out,omitempty"`
}

// curvePoint is what one choice of mixing gives.
type curvePoint struct {
	Mixing       float64 `json:"mixing"`
	EpochSeconds float64 `json:"epoch_seconds"`
	Steps        int     `json:"steps"`
	MeetAgain    float64 `json:"meet_again"`
}

func (c *planCmd) config() (bucket.Config, error) {
	f, err := c.ranksFlags.config()
	if err != nil {
		return f, err
	}
	if f.Ranks == 0 && f.Speeds == nil {
		return f, badinput.Errorf("the number of ranks is missing: give --ranks, --speeds or --cluster")
	}
	f.Mixing, f.MicroBatches, f.MaxSamples, f.MaxTokens = &c.Mixing, c.MicroBatches, c.MaxSamples, c.MaxTokens
	f.Overlong, f.PadTo, f.BatchMultiple = c.Overlong, c.PadTo, c.BatchMultiple
	return f, nil
}

// Run runs the command.
func (c *planCmd) Run(a *cli.App) error {
	f, err := c.config()
	if err != nil {
		return err
	}
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths), cli.FileFlag("--table", c.Table)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	in, err := readData(a, &c.tableFlags, &c.lengthsFlags)
	if err != nil {
		return err
	}
	begun := time.Now()
	planner, err := in.plan(f)
	if err != nil {
		return err
	}
	took, p := time.Since(begun).Seconds(), planner.File()
	if c.Column != "" || c.Scale != 0 || slices.Contains(a.Given, "pair") {
		p.Read = &bucket.Reading{Column: c.Column, Pair: c.Pair, Scale: c.Scale}
	}
	if c.Out != "" {
		if err := cli.WriteFile(c.Out, p.Write); err != nil {
			return err
		}
	}
	d := planned{Score: p.Score, LowerBoundSeconds: p.LowerBoundSeconds, Anchors: p.Anchors, PlanSeconds: took, Mixing: p.Mixing, Pairs: p.Pairs, FreeCut: p.FreeCut, Prediction: p.Prediction, Tile: p.Tile,
		Samples: p.Samples, Ranks: p.Ranks, Bands: p.Bands, Out: c.Out, BatchesPerStep: planner.StepBatches(), Columns: c.chosen}
	of := planner.Of(in.lengths)
	d.SamplesPerStep, d.TokensPerStep = of.StepSamples, of.StepTokens
	if h, ok := stepcost.HeldOut(p.Table); ok {
		d.Held = &h
	}
	if p.Samples <= countable || c.Curve {
		again, random := bucket.Recurrence(planner, in.lengths, 1, 0)
		d.MeetAgain, d.MeetAgainRandom = &again, &random
	}
	if c.Curve {
		if d.Curve, err = curve(a, &in, f); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.WriteJSON(d)
	}
	return c.print(a, d)
}

// countable is the number of samples up to which a plan says unasked how often samples of a step meet again: counting takes long.
const countable = 5_000_000

func curve(a *cli.App, in *data, f bucket.Config) (out []curvePoint, err error) {
	all := []float64{0, .05, .1, .2, .3, .5, .8, .95, 1}
	report, clear := a.Progress("mixing")
	defer clear()
	for i, m := range all {
		if err := a.Ctx.Err(); err != nil {
			return nil, err
		}
		f.Mixing = &m
		p, err := in.plan(f)
		if err != nil {
			return nil, err
		}
		again, _ := bucket.Recurrence(p, in.lengths, 1, 0)
		out = append(out, curvePoint{m, p.File().EpochSeconds, p.File().Steps, again})
		report(i+1, len(all))
	}
	return out, nil
}

func (c *planCmd) print(a *cli.App, p planned) error {
	c.printColumns(a.Out)
	rows := make([][]string, 0, len(p.Bands))
	from := 1
	for _, b := range p.Bands {
		lengths := strconv.Itoa(b.Upper)
		if from < b.Upper {
			lengths = fmt.Sprintf("%d-%d", from, b.Upper)
		}
		row := []string{lengths, strconv.Itoa(b.Samples), strconv.Itoa(b.Batch), cli.Seconds(b.Seconds)}
		if p.Pairs {
			row = slices.Insert(row, 1, strconv.Itoa(b.Target))
		}
		rows = append(rows, row)
		from = b.Upper + 1
	}
	heads := []cli.Column{cli.Left("lengths"), cli.Right("samples"), cli.Right("batch of the longest"), cli.Right("predicted")}
	if p.Pairs {
		heads = []cli.Column{cli.Left("sources"), cli.Right("longest target"), cli.Right("samples"), cli.Right("mean batch"), cli.Right("predicted")}
	}
	if err := cli.PrintLines(a.Out, cli.Table(heads, rows)); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if len(p.Curve) > 0 {
		rows = rows[:0]
		for _, x := range p.Curve {
			rows = append(rows, []string{fmt.Sprint(x.Mixing), cli.Seconds(x.EpochSeconds), strconv.Itoa(x.Steps), fmt.Sprintf("%.1f%%", 100*x.MeetAgain)})
		}
		if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("mixing"), cli.Right("epoch"), cli.Right("steps"), cli.Right("meet again")}, rows)); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	printScore(a, p.Score, p.LowerBoundSeconds)
	printStep(a, p)
	if p.MeetAgain != nil {
		fmt.Fprintf(a.Out, "Mixing %v: of the pairs of samples in a step %.1f%% meet again in the next epoch; in random steps %.1f%%.\n", p.Mixing, 100**p.MeetAgain, 100**p.MeetAgainRandom)
	}
	if p.FreeCut {
		fmt.Fprintln(a.Out, "Batches are cut for the least work, not to the anchor duration, which makes the epoch shorter.")
	}
	how := map[string]string{"fit": "a least-squares fit of the table", "isotonic": "interpolation in the table, made monotonic in batch and length"}[p.Prediction]
	if p.Tile > 0 {
		how += fmt.Sprintf(", in whole tiles of %d tokens", p.Tile)
	}
	fmt.Fprintf(a.Out, "Predicted by %s. Planned %s in %s.\n", how, cli.Count(p.Samples, "sample"), cli.Seconds(p.PlanSeconds))
	if h := p.Held; h != nil {
		worst := strconv.Itoa(h.Length)
		if h.Target > 0 {
			worst += ", " + strconv.Itoa(h.Target)
		}
		fmt.Fprintf(a.Out, "Lengths of the table that are left out, one at a time, are predicted %.1f%% off, at worst (%s) %.1f%%.\n", 100*h.Median, worst, 100*h.Worst)
	}
	if c.Out != "" {
		fmt.Fprintf(a.Out, "Written to %s. Next: evenkeel bucket schedule --plan %s --lengths %s --out schedule.jsonl\n", c.Out, c.Out, c.Lengths)
	}
	return nil
}

// printStep prints the size of a step: with unequal ranks it can be several times that of equal ones.
func printStep(a *cli.App, p planned) {
	tokens := "tokens"
	if p.Pairs {
		tokens = "target tokens"
	}
	fmt.Fprintf(a.Out, "A step has %.0f samples and %.0f %s over all ranks, in the mean.\n", p.SamplesPerStep, p.TokensPerStep, tokens)
	if slices.Max(p.BatchesPerStep) > 1 {
		fmt.Fprintf(a.Out, "Batches a step: %s; a rank adds up their gradients; with --micro-batches 1 every rank has one, and steps are smaller.\n", batchesPerStep(p.BatchesPerStep))
	}
	fmt.Fprintln(a.Out, "These figures are for one predicted epoch. Other epochs have some steps more or fewer; the smaller the data set, the more they differ.")
}

// batchesPerStep lists the ranks by how many batches they have.
func batchesPerStep(of []int) string {
	ranks := map[int][]int{}
	for r, n := range of {
		ranks[n] = append(ranks[n], r)
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(ranks)) {
		s := "rank "
		if len(ranks[n]) > 1 {
			s = "ranks "
		}
		out = append(out, fmt.Sprintf("%d of %s%s", n, s, spans(ranks[n])))
	}
	return strings.Join(out, ", ")
}

// spans writes rising numbers as 0-3,6,8-9.
func spans(of []int) string {
	var out []string
	for i := 0; i < len(of); {
		k := i
		for k+1 < len(of) && of[k+1] == of[k]+1 {
			k++
		}
		s := strconv.Itoa(of[i])
		if k > i {
			s += "-" + strconv.Itoa(of[k])
		}
		out, i = append(out, s), k+1
	}
	return strings.Join(out, ",")
}

// printScore prints what plan and simulate have in common.
func printScore(a *cli.App, s bucket.Score, bound float64) {
	fmt.Fprintf(a.Out, "Epoch %s in %s, %.4f of the lower bound %s.\n", cli.Seconds(s.EpochSeconds), cli.Count(s.Steps, "step"), s.EpochSeconds/bound, cli.Seconds(bound))
	fmt.Fprintf(a.Out, "Imbalance %.4f (p99 of a step %.4f), padding %.3f%%, out of memory %d, lost %d, repeated %d, skipped %d.\n",
		s.Imbalance, s.ImbalanceP99, 100*s.Padding, s.OutOfMemory, s.Lost, s.Repeated, s.Skipped)
	if s.SourcePadding+s.TargetPadding > 0 {
		fmt.Fprintf(a.Out, "Padding of sources %.3f%%, of targets %.3f%%.\n", 100*s.SourcePadding, 100*s.TargetPadding)
	}
}
