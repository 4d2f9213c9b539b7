package refine

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
	model *costmodel.Model // of the spread of the plan that is refined
	*memory
	known  map[*costmodel.Model]*memory
	rng    *rand.Rand
	batch  int
	left   int   // prices that it may still compute
	micros []int // micro-batches to try, rising
	upward bool  // stages take devices of a class from the first on, not from the last
}

// memory is what depends on the model alone, and prices that were computed.
type memory struct {
	times   *costmodel.Times
	pricer  *costmodel.Pricer
	pool    []int // devices of each class
	tensors [][]int
}

// refinements bounds the work: so many prices of plans of 32 layers on 25 devices or more, a tenth at least of smaller ones, five times as
// many if the search is to be exact.
const refinements = 200000

// Plan is a plan as refining takes and returns it.
type Plan struct {
	Model       *costmodel.Model // of the plan's spread; plans of one spread have the same model
	GlobalBatch int              // samples of an iteration
	MicroBatch  int              // samples of a micro-batch
	Stages      []costmodel.Stage
}

// Run returns plans that are quicker than those given, at most one for each. job is the model before any spread, whose size says how much work
// there is; exact asks for five times as much. When ctx has ended, it refines a little all the same.
func Run(ctx context.Context, job *costmodel.Model, plans []Plan, exact bool) []Plan {
	all := make([]*refinement, len(plans))
	each(len(plans), func(r *refiner, i int) {
		f := &refinement{model: plans[i].Model, rng: rand.New(rand.NewPCG(1, uint64(i))), batch: plans[i].GlobalBatch}
		r.take(f)
		f.best = r.draft(&plans[i])
		f.upward, f.was = r.upward, f.best.price*(1-1e-9)
		all[i] = f
	})
	layers, devices := len(job.Layers()), 0
	for _, k := range job.Classes() {
		devices += k.Count
	}
	if ctx.Err() != nil {
		hurry(context.WithoutCancel(ctx), all, hurried*32/max(32, layers))
	} else {
		prices := refinements * 32 / max(32, layers) / len(plans) * min(800, max(80, layers*devices)) / 800
		if exact {
			prices *= 5
		}
		// Half of the work goes to all, the other half to those that are the quickest then.
		each(len(all), func(r *refiner, i int) { r.search(ctx, all[i], prices/2) })
		last := min(finalists, len(all))
		byPrice(all)
		each(last, func(r *refiner, i int) { r.search(ctx, all[i], prices*len(all)/2/last) })
	}
	better := make([]Plan, len(all))
	each(len(all), func(r *refiner, i int) {
		if f := all[i]; f.best.price < f.was {
			r.take(f)
			stages, _ := r.place(f.best)
			better[i] = Plan{f.model, f.batch, f.best.micro, stages}
		}
	})
	return slices.DeleteFunc(better, func(p Plan) bool { return p.Model == nil })
}

// byPrice sorts by seconds of a sample.
func byPrice(all []*refinement) {
	slices.SortStableFunc(all, func(a, b *refinement) int {
		return cmp.Compare(a.best.price/float64(a.batch), b.best.price/float64(b.batch))
	})
}

// each calls work for so many plans, on all processors, with a refiner that no other has at the time. What it remembers changes no
// price, so the outcome does not hang on which it is.
func each(plans int, work func(r *refiner, i int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range min(plans, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			r := &refiner{known: map[*costmodel.Model]*memory{}}
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
	model  *costmodel.Model
	rng    *rand.Rand
	batch  int
	upward bool
	was    float64 // price that refining must beat
	best   *draft
}

// take goes on with a refinement.
func (r *refiner) take(f *refinement) {
	r.model, r.rng, r.batch, r.upward, r.micros = f.model, f.rng, f.batch, f.upward, microBatches(f.model, f.batch)
	if r.known[r.model] == nil {
		m := &memory{times: r.model.Times(), pricer: r.model.Pricer()}
		for class, k := range r.model.Classes() {
			m.pool = append(m.pool, k.Count)
			m.tensors = append(m.tensors, r.model.TensorsOf(class))
		}
		r.known[r.model] = m
	}
	r.memory = r.known[r.model]
}

// microBatches are the divisors of a global batch that all devices together were profiled for.
func microBatches(m *costmodel.Model, batch int) []int {
	devices := 0
	for _, k := range m.Classes() {
		devices += k.Count
	}
	most := min(batch, devices*m.LargestMicroBatch(), 1<<20)
	return slices.DeleteFunc(costmodel.Divisors(batch), func(b int) bool { return b > most })
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
