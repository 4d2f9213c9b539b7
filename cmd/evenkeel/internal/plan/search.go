package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
)

type searchCmd struct {
	jobFlags
	Batch      []int         `help:"Samples of an iteration (global batch). Of several, the one with the least time per sample is chosen. Default: 1024 for the built-in example." placeholder:"N"`
	MicroBatch []int         `help:"Samples of a replica's micro-batch to try. Default: all that divide the batch." placeholder:"N"`
	Tensor     []int         `help:"Tensor degrees to try. Default: all that were profiled. Degrees above the devices of a machine take whole machines (column machines of the layer profile)." placeholder:"N"`
	Context    []int         `help:"Context-parallel degrees to try: the number of devices that divide a replica's sequences. Default: all that divide a machine, if the layer profile has context_bytes; else 1. Not together with experts, nor with --for deepspeed." placeholder:"N"`
	Experts    []int         `help:"Expert-parallel degrees to try: the number of replicas that divide the experts of a layer. Default: all that divide them, if the layer profile has experts; else 1. Not together with context, nor with --for deepspeed." placeholder:"N"`
	Stages     string        `help:"Number of stages, or a range such as 2-8. Default: any." placeholder:"N[-N]"`
	Sharding   []string      `help:"Kinds of sharding to choose from: none, optimizer (ZeRO 1), gradients (ZeRO 2), full (ZeRO 3). Default: all." placeholder:"KIND"`
	Checkpoint string        `help:"Which activations layers recompute: auto (each layer as is best), never, selective (all layers the core of attention), always (all layers everything). Default: ${default}." enum:"auto,never,selective,always" default:"auto"`
	Schedule   string        `help:"Order of the pipeline's passes: 1f1b, interleaved (several stages on each device), zb-h1 (gradients of weights fill the bubbles), h-1f1b (stages send micro-batches ahead while they compute), or any (the quickest that fits memory and that the trainer runs). Default: 1f1b." placeholder:"NAME"`
	For        string        `help:"Search only plans that this trainer can run: megatron, deepspeed or torch. Default: all plans." placeholder:"TRAINER"`
	Price      prices        `help:"Price of an hour of each device, to list the plans that no other plan beats in both time and price. The search then also covers halves, quarters and so on of each kind of device." placeholder:"DEVICE=X"`
	Time       time.Duration `help:"End the search after so long, for example 30s, with the best plan so far. Default: none." placeholder:"DURATION"`
	Bound      bool          `help:"Print a time that no plan within the options takes less than. It takes about as long as the search."`
	Out        string        `help:"Plan file to write." placeholder:"FILE"`
	JSON       bool          `help:"Print JSON."`
}

// Help is what --help adds.
func (*searchCmd) Help() string {
	return `A plan cuts the model into stages of consecutive layers, gives each stage its own devices, and chooses tensor parallelism, data
parallelism, sharding and recomputation for every layer. Where a stage has different devices, each gets the share of a micro-batch
with which all finish at the same time. Ctrl-C prints the best plan so far.

The search covers plans whose stages all have the same number of replicas. It refines the best ones by local search over all plans
that evenkeel plan check accepts, except with --micro-batch, --for megatron or --for deepspeed. With --schedule, plans are also searched
for transfers that run beside computing; then --bound counts computing alone. With --for, evenkeel plan export can write every plan found.

Examples:

  evenkeel plan search
  evenkeel plan search --model llama-3-8b --cluster cluster.yaml --batch 128
  evenkeel plan search --for megatron --out plan.json
  evenkeel plan search --schedule any
  evenkeel plan search --price a100-40=3.67,v100-16=2.48
  evenkeel plan search --profile layers.csv --cluster cluster.yaml --batch 512 --out plan.json
  evenkeel plan search --profile layers.csv --cluster cluster.yaml --batch 256,512 --stages 2-8 --memory 0.9 --json`
}

type searched struct {
	Plan           *planner.Plan `json:"plan"`
	SecondsPerIter float64       `json:"seconds"`
	SamplesPerSec  float64       `json:"samples_per_second"`
	Gap            float64       `json:"gap"`
	LowerBound     float64       `json:"lower_bound,omitempty"` // seconds: no plan within the options has a shorter iteration
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
	if c.Time < 0 {
		return badinput.Errorf("--time: %v; must be above 0", c.Time)
	} else if c.Time > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.Time)
		defer cancel()
	}
	o := planner.Options{GlobalBatches: c.Batch, MicroBatches: c.MicroBatch, Tensors: c.Tensor, Contexts: c.Context, Experts: c.Experts, Checkpoint: c.Checkpoint}
	if len(c.Batch) == 0 {
		if !c.builtin() {
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
	shown := ""
	report, clear := a.Progress(shown)
	r, err := job.Search(ctx, planner.SearchOptions{For: c.For, Schedule: c.Schedule, Bound: c.Bound, Progress: func(doing string, done, steps int) {
		if doing != shown {
			clear()
			shown = doing
			report, clear = a.Progress(doing)
		}
		report(done, steps)
	}})
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
		if a.Ctx.Err() != nil {
			return cli.Interrupted(a.Ctx.Err(), "interrupted before any plan was found")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("--time: no plan was found in %v; give more", c.Time)
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
	if a.Ctx.Err() != nil {
		return cli.Interrupted(a.Ctx.Err(), "interrupted; the plan is the best so far")
	}
	if ctx.Err() != nil {
		a.Log.Warn().Msgf("--time: ended after %v; the plan is the best so far", c.Time)
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
	refined := ""
	if r.Refined {
		refined = ", and refined the best"
	}
	searched := fmt.Sprintf("Searched %d preset conditions, %d states, in %s", r.Conditions, r.States, cli.Seconds(took))
	fmt.Fprintf(a.Out, "%s%s.\n", searched, refined)
	if c.Bound {
		bound, assumed := r.LowerBound*float64(p.GlobalBatch), "a plan so quick may not exist"
		if r.ByWork {
			assumed = "computing alone, perfectly divided"
		}
		fmt.Fprintf(a.Out, "No plan within the options takes less than %s, %.0f%% of this one (%s).\n", cli.Seconds(bound), 100*bound/p.Predicted.Simulated, assumed)
	}
	if len(r.Others) > 0 {
		o := r.Others[0]
		fmt.Fprintf(a.Out, "Next best: %s, micro-batch %d, %s.\n", cli.Count(len(o.Stages), "stage"), o.MicroBatch, cli.Seconds(o.Predicted.Simulated))
	}
	if c.Out != "" {
		fmt.Fprintf(a.Out, "Written to %s.\n", c.Out)
	}
	return printFront(a, front)
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

// prices are the prices of an hour of each device.
type prices map[string]float64

// UnmarshalText reads prices as a=1,b=2.
func (p *prices) UnmarshalText(text []byte) error {
	if *p == nil {
		*p = prices{}
	}
	for _, each := range strings.Split(string(text), ",") {
		device, value, _ := strings.Cut(each, "=")
		price, err := strconv.ParseFloat(value, 64)
		if err != nil || device == "" {
			return fmt.Errorf("%.40q; want DEVICE=X, X a number", each)
		}
		if _, twice := (*p)[device]; twice {
			return fmt.Errorf("%.40s is given twice", device)
		}
		(*p)[device] = price
	}
	return nil
}

// pricedPlan is a plan in the front of the JSON document of search.
type pricedPlan struct {
	Plan    *planner.Plan `json:"plan"`
	Seconds float64       `json:"seconds"`
	Price   float64       `json:"price"` // of an iteration
}

// front searches the plans that no other beats in both time and price, if prices are given.
func (c *searchCmd) front(a *cli.App, job *planner.Job, r *planner.Result) ([]pricedPlan, error) {
	if len(c.Price) == 0 {
		return nil, nil
	}
	report, clear := a.Progress("searching parts of the cluster")
	all, err := job.Front(a.Ctx, c.Price, planner.SearchOptions{For: c.For, Schedule: c.Schedule}, r.Plan, report)
	clear()
	if err != nil && a.Ctx.Err() == nil { // after an interruption only the plan found before is printed
		return nil, err
	}
	front := make([]pricedPlan, len(all))
	for i, p := range all {
		front[i] = pricedPlan{p.Plan, p.Plan.Predicted.Simulated, p.Price}
	}
	return front, nil
}

// printFront prints a table of plans by time and price.
func printFront(a *cli.App, front []pricedPlan) error {
	if len(front) == 0 {
		return nil
	}
	var rows [][]string
	for _, p := range front {
		count := map[string]int{}
		for _, s := range p.Plan.Stages[:p.Plan.Pipeline()] {
			for _, g := range s.Groups {
				count[g.Device] += g.Count
			}
		}
		var devices []string
		for _, d := range slices.Sorted(maps.Keys(count)) {
			devices = append(devices, fmt.Sprintf("%d %s", count[d], d))
		}
		samples := float64(p.Plan.GlobalBatch)
		rows = append(rows, []string{cli.Seconds(p.Seconds), fmt.Sprintf("%.1f", samples/p.Seconds), fmt.Sprintf("%.4g", p.Price), fmt.Sprintf("%.4g", p.Price/samples*1e6), cli.Count(len(p.Plan.Stages), "stage"), strings.Join(devices, ", ")})
	}
	fmt.Fprintln(a.Out, "\nPlans by time and price (each is the quickest found at its price; --json has the whole plans):")
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("iteration"), cli.Right("samples/s"), cli.Right("price"), cli.Right("of a million samples"), cli.Left("plan"), cli.Left("devices")}, rows))
}
