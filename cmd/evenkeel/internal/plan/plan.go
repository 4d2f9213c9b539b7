// Package plan holds the commands about plans of hybrid parallelism.
package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner"
)

// Cmd holds the commands about plans of hybrid parallelism.
type Cmd struct {
	Search    searchCmd    `cmd:"" help:"Find the quickest plan for a model on a mixed cluster."`
	Check     checkCmd     `cmd:"" help:"Check a plan and compute its cost, term by term."`
	Calibrate calibrateCmd `cmd:"" help:"Fit the cost model to measured plans."`
	Profile   profileCmd   `cmd:"" help:"Measure a network layer by layer on this machine."`
	Convert   convertCmd   `cmd:"" help:"Convert the layer profile of another planner."`
	Merge     mergeCmd     `cmd:"" help:"Join layer profiles of one model, measured on different devices."`
	Run       runCmd       `cmd:"" help:"Train a small network by a plan: a process per stage, connected by mutual TLS."`
	Keys      keysCmd      `cmd:"" help:"Create the certificates by which the stages of a run authenticate each other."`
	Timeline  timelineCmd  `cmd:"" help:"Draw one iteration of a plan, or write it as a trace."`
	Export    exportCmd    `cmd:"" help:"Write a plan for a trainer."`
	Diff      diffCmd      `cmd:"" help:"Show the differences between two plans."`
}

// searchCmd searches for a plan.
type searchCmd struct {
	jobFlags
	Batch      []int    `help:"Global batch of an iteration; of several the one with the least time per sample is taken. Default: 1024 for the example." placeholder:"N"`
	MicroBatch []int    `help:"Micro-batches of a replica to try. Default: all that divide the batch." placeholder:"N"`
	Replicas   []int    `help:"Replicas of a stage to try. Default: all that divide the batch." placeholder:"N"`
	Tensor     []int    `help:"Tensor degrees to try. Default: all that were profiled; above the devices of a machine, over whole machines (machines of the layer profile)." placeholder:"N"`
	Context    []int    `help:"Context-parallel degrees to try: devices that divide a replica's sequences. Default: all that divide a machine, if the layer profile has context_bytes; else 1. Not together with experts, nor with --for deepspeed." placeholder:"N"`
	Experts    []int    `help:"Expert-parallel degrees to try: replicas that divide the experts of layers. Default: all that divide them, if the layer profile has experts; else 1. Not together with context, nor with --for deepspeed." placeholder:"N"`
	Stages     string   `help:"Number of stages, or a range such as 2-8. Default: any." placeholder:"N[-N]"`
	Sharding   []string `help:"Kinds of sharding to choose from: none, optimizer (ZeRO 1), gradients (ZeRO 2), full (ZeRO 3). Default: all." placeholder:"KIND"`
	Checkpoint string   `help:"Whether layers may recompute activations: auto, never, selective (all of them the core of attention), always (all of them whole). Default: ${default}." enum:"auto,never,selective,always" default:"auto"`
	Schedule   string   `help:"Order of the pipeline's passes: 1f1b, interleaved (several stages on each device), zb-h1 (gradients of weights in the bubbles), h-1f1b (micro-batches sent ahead while stages compute), or any: the quickest that fits, of those that the trainer runs. Default: 1f1b." placeholder:"NAME"`
	For        string   `help:"Search only plans that this trainer can run: megatron, deepspeed or torch. Default: all plans." placeholder:"TRAINER"`
	Price      prices   `help:"Price of each device's hour, to list the plans that are quick or cheap, by time and price. Besides the whole cluster its halves, quarters and so on of each kind are searched." placeholder:"DEVICE=X"`
	Exact      bool     `help:"Keep every state of the search, however long it takes. Default for up to 32 layers on up to 256 devices, or 12 layers where these are of more than two kinds."`
	Out        string   `help:"Plan file to write." placeholder:"FILE"`
	JSON       bool     `help:"Print JSON."`
}

// Help is what --help adds.
func (*searchCmd) Help() string {
	return `A plan cuts the model into stages of consecutive layers, each on its own devices, and chooses tensor and data parallelism,
sharding and activation checkpointing for every layer. In a stage of different devices each gets the share of a micro-batch
that it finishes at the same time as the others. Ctrl-C prints the best plan so far.

Plans in which every stage has the same number of replicas that pass micro-batches on, and the devices of a stage are of one class, or
of two in quarters of its replicas, are searched by dynamic programming. The best are then refined by local search over all plans that
evenkeel plan check accepts, but not with --replicas, --micro-batch or --for megatron or deepspeed.
No plan within the options takes less than the lower bound. With --schedule the best are tried by others than 1F1B: the same stages by zb-h1, and by h-1f1b with as many micro-batches sent ahead
as helps, and their layers dealt to the same devices in 2 to 8 rounds, interleaved; the bound is then that of computing alone. With --for megatron or deepspeed only plans are searched that evenkeel plan export writes
for that trainer.

Examples:

  evenkeel plan search
  evenkeel plan search --for megatron --out plan.json
  evenkeel plan search --schedule any
  evenkeel plan search --price a100-40=3.67,v100-16=2.48
  evenkeel plan search --profile layers.csv --cluster cluster.yaml --batch 512 --out plan.json
  evenkeel plan search --profile layers.csv --cluster cluster.yaml --batch 256,512 --stages 2-8 --memory 0.9 --json`
}

// searched is the JSON document of search.
type searched struct {
	Plan           *planner.Plan `json:"plan"`
	SecondsPerIter float64       `json:"seconds"`
	SamplesPerSec  float64       `json:"samples_per_second"`
	Gap            float64       `json:"gap"`
	LowerBound     float64       `json:"lower_bound"` // seconds of an iteration that no plan within the options takes less than
	Conditions     int           `json:"conditions"`
	States         int           `json:"states"`
	SearchSeconds  float64       `json:"search_seconds"`
	Interrupted    bool          `json:"interrupted,omitempty"`
	Front          []pricedPlan  `json:"front,omitempty"`
	Warnings       []string      `json:"warnings,omitempty"`
	Out            string        `json:"out,omitempty"`
}

// Run runs the command.
func (c *searchCmd) Run(a *cli.App) error {
	ctx := a.Ctx
	o := planner.Options{GlobalBatches: c.Batch, MicroBatches: c.MicroBatch, Replicas: c.Replicas, Tensors: c.Tensor, Contexts: c.Context, Experts: c.Experts, Checkpoint: c.Checkpoint}
	if len(c.Batch) == 0 {
		if c.Profile != "" {
			return badinput.Errorf("--batch is missing: the samples of an iteration")
		}
		o.GlobalBatches = []int{1024}
	}
	for _, s := range c.Sharding {
		o.Shardings = append(o.Shardings, planner.Sharding(s))
	}
	var err error
	if o.LeastStages, o.MostStages, err = stagesRange(c.Stages); err != nil {
		return err
	}
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--profile", c.Profile), cli.FileFlag("--cluster", c.Cluster)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	job, err := c.read(o)
	if err != nil {
		return err
	}
	if len(c.Price) > 0 {
		if err := job.CheckPrices(c.Price); err != nil {
			return badinput.Errorf("--price: %w", err)
		}
	}
	begun := time.Now()
	report, clear := a.Progress("searching")
	r, err := job.Search(ctx, planner.SearchOptions{Exact: c.Exact, For: c.For, Schedule: c.Schedule, Progress: func(done, conditions int, _, _ float64) { report(done, conditions) }})
	clear()
	if errors.Is(err, planner.ErrTrainer) {
		return unknownTrainer(c.For)
	}
	if errors.Is(err, planner.ErrSchedule) {
		hint, known := "", append(planner.Schedules(), planner.ScheduleAny)
		if !slices.Contains(known, c.Schedule) {
			hint = cli.DidYouMean(c.Schedule, known)
		}
		return badinput.Errorf("--schedule: %w%s", err, hint)
	}
	if err != nil {
		if ctx.Err() != nil {
			return cli.Interrupted(ctx.Err(), "interrupted before any plan was found")
		}
		return err
	}
	if c.Out != "" {
		if err := planner.WritePlan(c.Out, r.Plan); err != nil {
			return err
		}
	}
	took := time.Since(begun).Seconds()
	front, err := c.front(a, job, r)
	if err != nil {
		return err
	}
	if err := c.print(a, job, r, took, ctx.Err() != nil, front); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return cli.Interrupted(ctx.Err(), "interrupted; the plan is the best so far")
	}
	return nil
}

func (c *searchCmd) print(a *cli.App, job *planner.Job, r *planner.Result, took float64, interrupted bool, front []pricedPlan) error {
	p := r.Plan
	if c.JSON {
		return a.WriteJSON(searched{p, p.Predicted.Simulated, float64(p.GlobalBatch) / p.Predicted.Simulated, r.Gap(), r.LowerBound * float64(p.GlobalBatch), r.Conditions, r.States, took, interrupted, front, job.Warnings(), c.Out})
	}
	c.warn(a, job)
	if err := printPlan(a, job, p); err != nil {
		return err
	}
	bound, assumed := r.LowerBound*float64(p.GlobalBatch), "there may be none that takes so little"
	if r.ByWork {
		assumed = "computing alone, perfectly divided"
	}
	refined := ""
	if r.Refined {
		refined = ", and refined the best"
	}
	searched := fmt.Sprintf("Searched %d preset conditions, %d states, in %s", r.Conditions, r.States, cli.Seconds(took))
	fmt.Fprintf(a.Out, "%s%s.\nNo plan within the options takes less than %s, %.0f%% of this one (%s).\n",
		searched, refined, cli.Seconds(bound), 100*bound/p.Predicted.Simulated, assumed)
	if len(r.Others) > 0 {
		o := r.Others[0]
		fmt.Fprintf(a.Out, "Next best: %s, micro-batch %d, %s.\n", cli.Count(len(o.Stages), "stage"), o.MicroBatch, cli.Seconds(o.Predicted.Simulated))
	}
	if c.Out != "" {
		fmt.Fprintf(a.Out, "Written to %s.\n", c.Out)
	}
	return printFront(a, front)
}

func microBatches(n int) string {
	if n == 1 {
		return "1 micro-batch"
	}
	return fmt.Sprintf("%d micro-batches", n)
}

// stagesRange reads "4" or "2-8".
func stagesRange(s string) (least, most int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	least, err1 := strconv.Atoi(low)
	most, err2 := strconv.Atoi(high)
	if err1 != nil || err2 != nil || least < 1 || most < least {
		return 0, 0, badinput.Errorf("--stages: %q; must be a number, or a range such as 2-8", s)
	}
	return least, most, nil
}

// printPlan prints a plan as a table: the layers, devices, strategies and cost of every stage.
func printPlan(a *cli.App, job *planner.Job, p *planner.Plan) error {
	var rows [][]string
	for i, s := range p.Stages {
		cost := p.Predicted.Stages[i]
		for g, group := range s.Groups {
			row := []string{"", "", "", "", "", "", ""}
			if g == 0 {
				row = []string{strconv.Itoa(i), layersText(job, s), "", strategiesText(s), cli.Seconds(cost.Step() + cost.Send), cli.Seconds(cost.Sync + cost.Update), ""}
			}
			u := cost.Memory[g]
			row[2] = groupText(p, group)
			row[6] = fmt.Sprintf("%.1f of %.1f", u.Peak()/(1<<30), u.Limit/(1<<30))
			rows = append(rows, row)
		}
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("stage"), cli.Left("layers"), cli.Left("devices"), cli.Left("strategies"),
		cli.Right("step"), cli.Right("once"), cli.Right("GiB")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\nAn iteration of %s in %s of %d: %s, %.1f samples/s; devices idle %.1f%%.\n", cli.Count(p.GlobalBatch, "sample"), microBatches(p.MicroBatches()),
		p.MicroBatch, cli.Seconds(p.Predicted.Simulated), float64(p.GlobalBatch)/p.Predicted.Simulated, 100*p.Predicted.Idle)
	if p.Experts > 1 {
		fmt.Fprintf(a.Out, "Every %d consecutive replicas divide the experts of a layer among them.\n", p.Experts)
	}
	if p.Predicted.Sequence {
		fmt.Fprintln(a.Out, "Layers with a tensor degree are sequence-parallel.")
	}
	if text := scheduleText(p); text != "" {
		fmt.Fprintln(a.Out, text)
	}
	for _, u := range p.Unused {
		fmt.Fprintf(a.Out, "Unused: %d %s (%d-%d).\n", u.Count, u.Device, u.First, u.First+u.Count-1)
	}
	return nil
}

// scheduleText says by which schedule a plan runs, unless it is 1F1B.
func scheduleText(p *planner.Plan) string {
	switch p.Schedule {
	case planner.ScheduleInterleaved:
		return fmt.Sprintf("Schedule: interleaved; stages %d apart lie on the same devices, whose memory in GiB is that of all their stages%s.", p.Pipeline(), sending(p))
	case planner.ScheduleZeroBubble:
		return fmt.Sprintf("Schedule: zb-h1; the gradients of weights are passes of their own%s.", sending(p))
	case planner.ScheduleAhead:
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Warmup), " ", ", "), "[]")
		return fmt.Sprintf("Schedule: h-1f1b; the stages begin with %s forward passes, and compute while they send.", text)
	}
	return ""
}

// sending says whether stages compute while they send.
func sending(p *planner.Plan) string {
	if p.Transfers == planner.TransfersOverlap {
		return "; stages compute while they send"
	}
	return ""
}

func layersText(job *planner.Job, s planner.Stage) string {
	l := job.Profile.Layers
	if s.To == s.From+1 {
		return fmt.Sprintf("%d %s", s.From, l[s.From].Name)
	}
	return fmt.Sprintf("%d-%d %s-%s", s.From, s.To-1, l[s.From].Name, l[s.To-1].Name)
}

func groupText(p *planner.Plan, g planner.Group) string {
	shares := strconv.Itoa(slices.Max(g.MicroBatches))
	if low := slices.Min(g.MicroBatches); low != slices.Max(g.MicroBatches) {
		shares = fmt.Sprintf("%d-%s", low, shares)
	}
	context := ""
	if p.Context > 1 {
		context = fmt.Sprintf(" x context %d", p.Context)
	}
	return fmt.Sprintf("%d %s: %d x tensor %d%s, %s samples", g.Count, g.Device, g.Count/p.Replica(g), g.Tensor, context, shares)
}

func strategiesText(s planner.Stage) string {
	var all []string
	for _, y := range s.Strategies {
		t := string(y.Sharding)
		if y.Tensor > 0 {
			t += fmt.Sprintf(" tensor %d", y.Tensor)
		}
		if y.Checkpoint {
			t += " checkpoint"
		}
		if y.Selective {
			t += " selective"
		}
		switch {
		case len(s.Strategies) == 1:
		case y.To == y.From+1:
			t = fmt.Sprintf("layer %d: %s", y.From, t)
		default:
			t = fmt.Sprintf("layers %d-%d: %s", y.From, y.To-1, t)
		}
		all = append(all, t)
	}
	return strings.Join(all, ", ")
}

// checkCmd checks a plan.
type checkCmd struct {
	Plan string `arg:"" help:"Plan file." placeholder:"FILE"`
	jobFlags
	trainerFlag
	JSON bool `help:"Print JSON."`
}

// Help is what --help adds.
func (*checkCmd) Help() string {
	return `The plan may be written by hand: it is checked (every layer once, no device twice, memory of every device), its cost is
computed and an iteration simulated. Exit status 1: it does not fit into memory.

Examples:

  evenkeel plan check plan.json
  evenkeel plan check mine.json --profile layers.csv --cluster cluster.yaml --json`
}

// Run runs the command.
func (c *checkCmd) Run(a *cli.App) error {
	p, err := planner.LoadPlan(c.Plan)
	if err != nil {
		return cli.FileError(err)
	}
	job, err := c.read(planner.Options{GlobalBatches: []int{p.GlobalBatch}})
	if err != nil {
		return err
	}
	if job, err = c.of(job); err != nil {
		return err
	}
	var full error
	if p.Predicted, full = job.Predict(p); p.Predicted == nil {
		return c.unlike(c.Plan, full)
	}
	if c.JSON {
		if err := a.WriteJSON(p); err != nil {
			return err
		}
	} else if err := c.print(a, job, p); err != nil {
		return err
	}
	if full != nil {
		return fmt.Errorf("%s: %w", c.Plan, full)
	}
	return nil
}

func (c *checkCmd) print(a *cli.App, job *planner.Job, p *planner.Plan) error {
	c.warn(a, job)
	if err := printPlan(a, job, p); err != nil {
		return err
	}
	var rows [][]string
	for i, s := range p.Predicted.Stages {
		rows = append(rows, []string{strconv.Itoa(i), cli.Seconds(s.Forward), cli.Seconds(s.Backward), cli.Seconds(s.Recompute), cli.Seconds(s.Gather), cli.Seconds(s.Convert),
			cli.Seconds(s.Send), cli.Seconds(s.Sync), cli.Seconds(s.Update)})
	}
	fmt.Fprintln(a.Out, "\nA micro-batch, and (sync, update) an iteration:")
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("stage"), cli.Right("forward"), cli.Right("backward"), cli.Right("recompute"), cli.Right("gather"),
		cli.Right("convert"), cli.Right("send"), cli.Right("sync"), cli.Right("update")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "By formula %s, simulated %s.\n", cli.Seconds(p.Predicted.Seconds), cli.Seconds(p.Predicted.Simulated))
	return nil
}
