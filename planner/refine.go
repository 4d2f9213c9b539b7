package planner

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// refiner improves plans by local search over what Predict accepts, beyond the space of the dynamic programming: unequal
// replicas, other shares, a tensor degree for each layer, devices left out. It descends by the first move that helps, then
// begins again from the best with some moves at random (iterated local search: Lourenco, Martin and Stutzle, 2003), then wanders
// by random steps. The same job gives the same plan.
type refiner struct {
	job *Job // in the spread of the plan that is refined
	*memory
	known  map[*Job]*memory
	rng    *rand.Rand
	batch  int
	left   int   // prices that it may still compute
	micros []int // micro-batches to try, rising
	upward bool  // stages take devices of a class from the first on, not from the last
}

// memory is what hangs on the job alone, and prices that were computed.
type memory struct {
	times   *costmodel.Times
	pricer  *costmodel.Pricer
	pool    []int // devices of each class
	tensors [][]int
}

// draft is a plan whose devices have no numbers yet, and whose shares follow from the rest.
type draft struct {
	micro  int
	stages []part
	price  float64 // seconds of an iteration, simulated; +Inf: it cannot be had
}

// part is a stage of a draft.
type part struct {
	to         int // the layer after its last
	groups     []team
	strategies []costmodel.Strategy // of its layers
}

// team is a group of a part.
type team struct{ class, replicas, tensor int }

// clone is a draft that shares its groups and strategies: none is changed but in a stage that is owned.
func (d *draft) clone() *draft {
	return &draft{micro: d.micro, stages: slices.Clone(d.stages), price: d.price}
}

// own is a stage of which no other draft has the groups and strategies.
func (d *draft) own(stage int) *part {
	s := &d.stages[stage]
	s.groups, s.strategies = slices.Clone(s.groups), slices.Clone(s.strategies)
	return s
}

func (d *draft) from(stage int) int {
	if stage == 0 {
		return 0
	}
	return d.stages[stage-1].to
}

// refinements bounds the work: so many prices of plans of 32 layers on 25 devices or more, a tenth at least of smaller ones, five times as
// many if the search is to be exact.
const refinements = 200000

// refines says whether plans are refined: not where the options prescribe replicas or micro-batches, or a trainer.
func (j *Job) refines(options SearchOptions) bool {
	return !options.Unrefined && len(j.options.Replicas) == 0 && len(j.options.MicroBatches) == 0 && (options.For == "" || options.For == "torch")
}

// refine returns plans that are quicker than those given, at most one for each.
func (j *Job) refine(ctx context.Context, plans []*Plan, options SearchOptions) []*Plan {
	all := make([]*refinement, len(plans))
	spreads := map[costmodel.Spread]*Job{}
	for _, p := range plans {
		spreads[p.spread()] = j.in(p.spread())
	}
	j.refineEach(len(plans), func(r *refiner, i int) {
		f := &refinement{job: spreads[plans[i].spread()], rng: rand.New(rand.NewPCG(1, uint64(i))), batch: plans[i].GlobalBatch}
		r.take(f)
		f.best = r.draft(plans[i])
		f.upward, f.was = r.upward, f.best.price*(1-1e-9)
		all[i] = f
	})
	layers, devices := len(j.Profile.Layers), 0
	for _, k := range j.classes {
		devices += k.Count
	}
	if ctx.Err() != nil {
		j.hurry(context.WithoutCancel(ctx), all, hurried*32/max(32, layers))
	} else {
		prices := refinements * 32 / max(32, layers) / len(plans) * min(800, max(80, layers*devices)) / 800
		if options.Exact {
			prices *= 5
		}
		// Half of the work goes to all, the other half to those that are the quickest then.
		j.refineEach(len(all), func(r *refiner, i int) { r.search(ctx, all[i], prices/2) })
		last := min(finalists, len(all))
		byPrice(all)
		j.refineEach(last, func(r *refiner, i int) { r.search(ctx, all[i], prices*len(all)/2/last) })
	}
	better := make([]*Plan, len(all))
	j.refineEach(len(all), func(r *refiner, i int) {
		if f := all[i]; f.best.price < f.was {
			r.take(f)
			stages, _ := r.place(f.best)
			better[i] = j.planOf(f.job.model.Spread(), f.batch, f.best.micro, stages)
		}
	})
	return slices.DeleteFunc(better, func(p *Plan) bool { return p == nil })
}

// byPrice sorts by seconds of a sample.
func byPrice(all []*refinement) {
	slices.SortStableFunc(all, func(a, b *refinement) int {
		return cmp.Compare(a.best.price/float64(a.batch), b.best.price/float64(b.batch))
	})
}

// refineEach calls work for so many plans, on all processors, with a refiner that no other has at the time. What it remembers changes no
// price, so the outcome does not hang on which it is.
func (j *Job) refineEach(plans int, work func(r *refiner, i int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range min(plans, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			r := &refiner{known: map[*Job]*memory{}}
			for i := range next {
				work(r, i)
			}
		})
	}
	for i := range plans {
		next <- i
	}
	close(next)
	group.Wait()
}

// search refines by so many prices: descents from the best and from near it, and a walk that may take longer for a while. Each finds what the
// other does not.
func (r *refiner) search(ctx context.Context, f *refinement, prices int) {
	r.take(f)
	r.left = prices / 2
	best := r.improve(ctx, r.descend(ctx, f.best))
	best = r.wander(ctx, best, prices/2)
	r.left = prices / 8
	f.best = r.descend(ctx, best)
}

// finalists are refined further.
const finalists = 3

// refinement is a plan that is refined, from where its work went on.
type refinement struct {
	job    *Job
	rng    *rand.Rand
	batch  int
	upward bool
	was    float64 // price that refining must beat
	best   *draft
}

// take goes on with a refinement.
func (r *refiner) take(f *refinement) {
	r.job, r.rng, r.batch, r.upward, r.micros = f.job, f.rng, f.batch, f.upward, f.job.microBatches(f.batch)
	if r.known[r.job] == nil {
		m := &memory{times: r.job.model.Times(), pricer: r.job.model.Pricer()}
		for class, k := range r.job.classes {
			m.pool = append(m.pool, k.Count)
			m.tensors = append(m.tensors, r.job.model.TensorsOf(class))
		}
		r.known[r.job] = m
	}
	r.memory = r.known[r.job]
}

// microBatches are the divisors of a global batch that all devices together were profiled for.
func (j *Job) microBatches(batch int) []int {
	devices := 0
	for _, k := range j.classes {
		devices += k.Count
	}
	var all []int
	most := min(batch, devices*j.model.LargestMicroBatch(), 1<<20)
	for b := 1; b <= most; b++ {
		if batch%b == 0 {
			all = append(all, b)
		}
	}
	return all
}

// improve is the quickest draft found from a local optimum on, which it may be itself.
func (r *refiner) improve(ctx context.Context, best *draft) *draft {
	for r.left > 0 && ctx.Err() == nil {
		d := best.clone()
		for range 1 + r.rng.IntN(3) {
			next, moves := d.clone(), r.moves(d)
			if moves[r.rng.IntN(len(moves))](next) {
				d = next
			}
		}
		r.left--
		if r.value(d); math.IsInf(d.price, 1) {
			continue
		}
		if d = r.descend(ctx, d); d.price < best.price {
			best = d
		}
	}
	return best
}

// draft is a plan as a draft, with its price, which may be another than the plan's where shares or places are.
func (r *refiner) draft(p *Plan) *draft {
	d := &draft{micro: p.MicroBatch}
	for i := range p.Stages {
		s, _ := r.job.stage(&p.Stages[i], "") // of plans that were found there is no error
		stage := part{to: s.To, strategies: s.Strategies}
		for _, g := range s.Groups {
			stage.groups = append(stage.groups, team{g.Class, g.Replicas, g.Tensor})
		}
		d.stages = append(d.stages, stage)
	}
	r.upward = false
	r.value(d)
	down := d.price
	r.upward = true
	if r.value(d); d.price >= down {
		r.upward = false
		r.value(d)
	}
	return d
}

// descend follows moves that help until none does.
func (r *refiner) descend(ctx context.Context, d *draft) *draft {
	for {
		moves := r.moves(d)
		r.rng.Shuffle(len(moves), func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
		helped := false
		for _, move := range moves {
			next := d.clone()
			if !move(next) {
				continue
			}
			if r.left--; r.left < 0 || ctx.Err() != nil {
				return d
			}
			if r.value(next); next.price < d.price*(1-1e-9) {
				d, helped = next, true
				break
			}
		}
		if !helped {
			return d
		}
	}
}

// value prices a draft.
func (r *refiner) value(d *draft) {
	d.price = math.Inf(1)
	stages, ok := r.place(d)
	if !ok {
		return
	}
	cost, err := r.pricer.Price(r.batch, d.micro, stages)
	if err != nil {
		return
	}
	for _, s := range cost.Stages {
		for _, u := range s.Memory {
			if u.Peak() > u.Limit {
				return
			}
		}
	}
	if d.price = cost.Seconds; len(stages) > simulatedPasses/(r.batch/d.micro) {
		return
	}
	if seconds, err := simulated(cost.Timings, cost.Stages, r.batch/d.micro); err == nil {
		d.price = seconds
	}
}

// simulatedPasses bounds stages times micro-batches of drafts that are simulated; others have their price by formula.
const simulatedPasses = 1 << 16

// place gives every group its devices, in the order of the stages, and its shares.
func (r *refiner) place(d *draft) ([]costmodel.Stage, bool) {
	stages := make([]costmodel.Stage, len(d.stages))
	free := slices.Clone(r.pool) // going down: the first device in use; going up: devices not yet in use
	for n := range d.stages {
		i := n
		if !r.upward {
			i = len(d.stages) - 1 - n
		}
		s := &d.stages[i]
		stages[i] = costmodel.Stage{From: d.from(i), To: s.to, Strategies: s.strategies}
		for _, g := range s.groups {
			count := g.replicas * g.tensor
			first := free[g.class] - count
			if first < 0 {
				return nil, false
			}
			first -= first % s.align(g) // so that every replica lies within a machine
			free[g.class] = first
			stages[i].Groups = append(stages[i].Groups, costmodel.Group{Class: g.class, First: free[g.class], Replicas: g.replicas, Tensor: g.tensor})
		}
		if !r.deal(d, i, stages[i].Groups) {
			return nil, false
		}
	}
	return stages, true
}

// align is what the number of a group's first device must be a multiple of.
func (s *part) align(g team) int {
	a := g.tensor
	for _, y := range s.strategies {
		if y.Tensor > 0 && a%y.Tensor != 0 {
			a *= y.Tensor // a common multiple
		}
	}
	return a
}

// deal divides the micro-batch over the replicas of a stage, sample by sample to the group that finishes it first.
func (r *refiner) deal(d *draft, stage int, groups []costmodel.Group) bool {
	replicas := 0
	for i := range groups {
		replicas += groups[i].Replicas
	}
	if replicas > d.micro {
		return false
	}
	if len(groups) == 1 {
		groups[0].Shares = costmodel.Even(d.micro, replicas)
		return true
	}
	s := &d.stages[stage]
	checkpointed := 0.0
	for _, y := range s.strategies {
		if y.Checkpoint {
			checkpointed += 1 / float64(len(s.strategies))
		}
	}
	given, next := make([]int, len(groups)), make([]float64, len(groups)) // samples, and seconds with one more
	raise := func(g int) bool {
		seconds, ok := r.times.Stage(groups[g].Class, groups[g].Tensor, given[g]/groups[g].Replicas+1, d.from(stage), s.to, checkpointed)
		if next[g] = seconds; !ok {
			next[g] = math.Inf(1)
		}
		return ok
	}
	left := d.micro - replicas
	for g := range groups {
		given[g] = groups[g].Replicas
		raise(g)
	}
	for left > 0 {
		g := 0
		for other := range groups {
			if next[other] < next[g] {
				g = other
			}
		}
		if math.IsInf(next[g], 1) {
			return false
		}
		level := groups[g].Replicas - given[g]%groups[g].Replicas // all of a level cost the same
		level = min(level, left)
		given[g] += level
		left -= level
		raise(g)
	}
	for g := range groups {
		groups[g].Shares = costmodel.Even(given[g], groups[g].Replicas)
	}
	return true
}
