package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"evenkeel/planner/bound"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/refine"
	"evenkeel/planner/search"
)

// Result is the outcome of a search.
type Result struct {
	Plan       *Plan
	Others     []*Plan // the next best plans, with other numbers of stages or conditions, the quickest first
	Bound      float64 // seconds per sample by formula of 1F1B: lower bound over the space of the dynamic programming
	Best       float64 // seconds per sample by formula of 1F1B of the cheapest plan in that space
	Conditions int
	States     int  // of the search
	Refined    bool // the best were refined by local search
	// LowerBound, if asked for, is a lower bound on the seconds per sample of every plan within the options, simulated and by formula (bound.Lower).
	LowerBound float64
	ByWork     bool // LowerBound counts computing alone (bound.Work), because other schedules than 1F1B were allowed
}

// Gap is the most by which the plan's cost by formula may be above the least cost in the space of the dynamic programming, as a
// share; 0: no plan in that space is cheaper. The plan need not be the cheapest by formula, because the simulation chooses, nor
// lie in that space, because it may be refined.
func (r *Result) Gap() float64 {
	return max(0, r.Plan.Predicted.Seconds/float64(r.Plan.GlobalBatch)/r.Bound-1)
}

// Numbers of plans that are simulated and refined.
const (
	ranked  = 24   // the cheapest plans are simulated,
	near    = 1.05 // if they cost at most this many times the cheapest
	refined = 4    // of them are refined,
	each    = 3    // and up to three of each number of stages, at most 4 x refined in all
)

// Width and tolerance of the search. It keeps all states for up to fewLayers layers (fewerLayers with more than two classes) on up
// to fewDevices devices.
const (
	tolerance     = 1e-3
	fewerLayers   = 12
	widthMany     = 1280 // more than two classes, at most fewLayers layers and fewDevices devices
	width         = 160
	widthOneClass = 4096
	widthFew      = 320 // several classes, more layers, at most fewDevices devices
	fewDevices    = 256
	fewLayers     = 32
)

// Progress is called, by one goroutine at a time, with what is done (searching, refining, bounding), how many steps of it are, and their number.
type Progress func(doing string, done, steps int)

func (p Progress) of(doing string) search.Progress {
	return func(done, steps int) {
		if p != nil {
			p(doing, done, steps)
		}
	}
}

// SearchOptions control a search. The zero value is the default.
type SearchOptions struct {
	// For restricts the search to plans that a trainer can run: megatron, deepspeed or torch; "": all plans.
	For string
	// Schedule is the schedule of the plans; any: the quickest that the trainer runs; "": 1f1b.
	Schedule string
	// Unrefined leaves plans as the dynamic programming found them.
	Unrefined bool
	// Bound asks for Result.LowerBound, which takes about as long as the search.
	Bound    bool
	Progress Progress // may be nil
}

// Search looks for the plan with the least time per sample: by dynamic programming (docs/decisions/0010-space-of-plans.md), then
// from the cheapest plans by local search beyond that space. It simulates these plans and returns the quickest. When ctx ends,
// it returns the best plan so far, a little refined, within about a second. Errors wrap ErrInfeasible and name the limit that
// excludes all plans.
func (j *Job) Search(ctx context.Context, options SearchOptions) (*Result, error) {
	j, err := j.For(options.For)
	if err != nil {
		return nil, err
	}
	within, err := j.restrictions(options.For)
	if err != nil {
		return nil, err
	}
	among, err := schedules(options.Schedule, options.For)
	if err != nil {
		return nil, err
	}
	// Refined plans keep to no given replicas or micro-batches, nor to another trainer than torch.
	r := &Result{Refined: !options.Unrefined && len(j.options.Replicas) == 0 && len(j.options.MicroBatches) == 0 && (options.For == "" || options.For == "torch")}
	plans, rest, err := j.found(ctx, within, r, options.Progress)
	if err != nil {
		return nil, err
	}
	if r.ByWork = !slices.Equal(among, []string{Schedule1F1B}); r.ByWork {
		beside := *j
		beside.model = j.model.Beside()
		more, others, err := beside.found(ctx, within, r, options.Progress)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		from := slices.Concat(plans, rest, more, others)
		others, err = j.reschedule(ctx, from, among)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(among, Schedule1F1B) {
			plans = nil
		}
		if plans = append(plans, others...); len(plans) == 0 {
			return nil, fmt.Errorf("%w: of the quickest plans, %d in all, none fits memory, has layers enough and a right number of micro-batches by %v", ErrInfeasible, len(from), among)
		}
	}
	slices.SortStableFunc(plans, func(a, b *Plan) int { return cmp.Compare(a.perSample(), b.perSample()) })
	r.Plan, r.Others = plans[0], plans[1:]
	if options.Bound {
		options.Progress.of("bounding")(0, 1)
		r.LowerBound = j.lowerBound(ctx, r.ByWork, r.Plan.perSample())
		r.Bound = max(r.Bound, min(r.LowerBound, r.Best))
	}
	return r, nil
}

// found are the cheapest plans by the job's model, predicted, and others to refine or reschedule. It adds to r what was searched.
func (j *Job) found(ctx context.Context, within []costmodel.Restriction, r *Result, progress Progress) (plans, others []*Plan, err error) {
	conditions := conditions(j.model, within)
	if len(conditions) == 0 {
		return nil, nil, j.noCondition()
	}
	found, err := search.Run(ctx, costs(conditions), j.thoroughness(progress.of("searching")))
	if err != nil && ctx.Err() == nil {
		return j.repaired(ctx, within, r, err, progress)
	}
	if err != nil {
		return nil, nil, err
	}
	best := found.Best[0].Total
	if r.Conditions == 0 {
		r.Bound, r.Best = found.Bound, best
	}
	r.Conditions, r.States = r.Conditions+len(conditions), r.States+found.States
	for _, k := range found.Best[:min(ranked, len(found.Best))] {
		if k.Total > near*best {
			break
		}
		plans = append(plans, j.plan(conditions[k.Condition], k))
	}
	starts := j.starts(plans, conditions, found.Best)
	others = starts[min(refined, len(plans)):]
	if r.Refined {
		plans = append(plans, j.refine(ctx, starts, progress.of("refining"))...)
	}
	return plans, others, j.hold(plans)
}

// thoroughness is how much of the dynamic programming's space is searched.
func (j *Job) thoroughness(progress search.Progress) search.Options {
	o := search.Options{Progress: progress}
	layers, small := len(j.Profile.Layers), len(j.Profile.Layers) <= fewLayers && j.model.Count() <= fewDevices
	if small && (len(j.classes) <= 2 || layers <= fewerLayers) {
		return o
	}
	o.Tolerance, o.Width = tolerance, width
	switch {
	case small:
		o.Width = widthMany
	case len(j.classes) == 1:
		o.Width = widthOneClass
	case j.model.Count() <= fewDevices:
		o.Width = widthFew
	}
	return o
}

// refine returns plans that are quicker than those given, at most one for each.
func (j *Job) refine(ctx context.Context, plans []*Plan, progress search.Progress) (better []*Plan) {
	all := make([]refine.Plan, len(plans))
	spreads := map[costmodel.Spread]*Job{}
	for i, p := range plans {
		if spreads[p.spread()] == nil {
			spreads[p.spread()] = j.in(p.spread())
		}
		k := spreads[p.spread()]
		all[i] = refine.Plan{Model: k.model, GlobalBatch: p.GlobalBatch, MicroBatch: p.MicroBatch}
		for n := range p.Stages {
			s, _ := k.stage(&p.Stages[n], "") // of plans that were found there is no error
			all[i].Stages = append(all[i].Stages, s)
		}
	}
	for _, p := range refine.Run(ctx, j.model, all, progress) {
		if slices.Contains(j.model.Choices().Shardings, Replicated) {
			for i := range p.Stages {
				p.Model.Unshard(&p.Stages[i])
			}
		}
		better = append(better, j.planOf(p.Model.Spread(), p.GlobalBatch, p.MicroBatch, p.Stages))
	}
	return better
}

func (p *Plan) perSample() float64 { return p.Predicted.Simulated / float64(p.GlobalBatch) }

// lowerBound is a lower bound on the seconds per sample, by the work alone or of 1F1B; at most those of the best plan.
func (j *Job) lowerBound(ctx context.Context, byWork bool, best float64) float64 {
	least := best
	for _, b := range j.options.GlobalBatches {
		if byWork {
			least = min(least, bound.Work(j.model, b)/float64(b))
			continue
		}
		least = min(least, bound.Lower(ctx, j.model, b, best*float64(b))/float64(b))
	}
	return least
}

// starts are the plans to refine: the cheapest, and a few of each other number of stages and spread.
func (j *Job) starts(plans []*Plan, conditions []*costmodel.Condition, best []search.Candidate) []*Plan {
	starts := slices.Clone(plans[:min(refined, len(plans))])
	for _, k := range best {
		if len(starts) == 4*refined {
			break
		}
		alike := 0
		p := j.plan(conditions[k.Condition], k)
		for _, o := range starts {
			if len(o.Stages) == len(p.Stages) && o.spread() == p.spread() {
				alike++
			}
		}
		if alike < each {
			starts = append(starts, p)
		}
	}
	return starts
}

func costs(conditions []*costmodel.Condition) []search.Costs {
	all := make([]search.Costs, len(conditions))
	for i, c := range conditions {
		all[i] = c
	}
	return all
}

// plan turns a candidate under a condition into a plan.
func (j *Job) plan(c *costmodel.Condition, k search.Candidate) *Plan {
	return j.planOf(c.Spread(), c.GlobalBatch, c.MicroBatch, c.Stages(k))
}

// planOf turns stages on units of Spread.Context devices, first to last, into a plan.
func (j *Job) planOf(spread costmodel.Spread, globalBatch, microBatch int, stages []costmodel.Stage) *Plan {
	p := &Plan{Version: Version, Model: j.Profile.Model, GlobalBatch: globalBatch, MicroBatch: microBatch}
	unit := spread.Context
	if unit > 1 {
		p.Context = unit
	}
	if spread.Experts > 1 {
		p.Experts = spread.Experts
	}
	for _, s := range stages {
		stage := Stage{From: s.From, To: s.To}
		for _, g := range s.Groups {
			d := Devices{j.devices[g.Class], g.First * unit, g.Devices() * unit}
			stage.Groups = append(stage.Groups, Group{d, g.Tensor, g.Shares})
		}
		for i, y := range s.Strategies {
			stage.Strategies = appendStrategy(stage.Strategies, Strategy{s.From + i, s.From + i + 1, y.Tensor, y.Sharding, y.Checkpoint, y.Selective})
		}
		p.Stages = append(p.Stages, stage)
	}
	p.Unused = j.unused(p)
	return p
}

// gaps are the devices of a class that are not taken.
func gaps(device string, taken []Devices, count int) (free []Devices) {
	slices.SortFunc(taken, func(a, b Devices) int { return a.First - b.First })
	next := 0
	for _, d := range append(taken, Devices{First: count}) {
		if d.First > next {
			free = append(free, Devices{device, next, d.First - next})
		}
		next = d.First + d.Count
	}
	return free
}

// noCondition says why there is no preset condition.
func (j *Job) noCondition() error {
	if o := &j.options; without(o.Tensors) || without(o.Contexts) || without(o.Experts) {
		return fmt.Errorf("%w: tensor %v times context %v must lie within a machine, times experts %v and replicas %v be at most the devices of a class, and replicas times micro-batch %v divide the global batch %v; change one of them",
			ErrInfeasible, orAny(o.Tensors), orAny(o.Contexts), orAny(o.Experts), orAny(o.Replicas), orAny(o.MicroBatches), o.GlobalBatches)
	}
	return fmt.Errorf("%w: replicas %v times micro-batch %v must divide the global batch %v, and the largest micro-batch in the profile is %d; "+
		"change one of them, or profile other micro-batches", ErrInfeasible, orAny(j.options.Replicas), orAny(j.options.MicroBatches), j.options.GlobalBatches, j.model.LargestMicroBatch())
}

func orAny(list []int) any {
	if list == nil {
		return "(any)"
	}
	return list
}

// repaired looks for a plan where the dynamic programming finds none: it refines those that it finds with the least more memory until they
// fit. The error says how much memory it takes.
func (j *Job) repaired(ctx context.Context, within []costmodel.Restriction, r *Result, err error, progress Progress) (plans, others []*Plan, _ error) {
	for _, more := range []float64{1.25, 1.5, 2, 3, 4, 8, 16, 64} {
		conditions := conditions(j.model.WithMemory(more), within)
		found, none := search.Run(ctx, costs(conditions), search.Options{Width: search.FirstPassWidth})
		if none != nil {
			continue
		}
		if r.Refined {
			plans = j.refine(ctx, j.starts(nil, conditions, found.Best), progress.of("refining"))
		}
		if len(plans) == 0 {
			return nil, nil, fmt.Errorf("%w: memory is too small; with %g times as much on every device there is one. Allow checkpointing and full sharding, lower the reserve, add devices or profile higher tensor degrees", err, more)
		}
		r.Conditions, r.States, r.Bound, r.Best = len(conditions), found.States, found.Bound, found.Best[0].Total
		return plans, nil, j.hold(plans)
	}
	return nil, nil, fmt.Errorf("%w: not even 64 times the memory helps; the limits on stages, replicas or micro-batches exclude every plan", err)
}

// hold predicts plans that were found.
func (j *Job) hold(plans []*Plan) (err error) {
	for _, p := range plans {
		if p.Predicted, err = j.Predict(p); err != nil {
			return fmt.Errorf("planner: the plan found does not hold: %w", err)
		}
	}
	return nil
}
