package refine

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"evenkeel/planner/costmodel"
)

// refiner refines one plan after another, and remembers prices.
type refiner struct {
	model *costmodel.Model // of the spread of the plan that is refined
	*memory
	known  map[*costmodel.Model]*memory
	rng    *rand.Rand
	batch  int
	left   int   // number of plans that it may still price
	micros []int // micro-batches to try, rising
}

// memory is what depends only on the model, and the prices computed with it.
type memory struct {
	times   *costmodel.ReplicaTimes
	pricer  *costmodel.Pricer
	pool    []int   // devices of each class
	tensors [][]int // tensor degrees of each class
}

// refinements is the number of plans priced for 32 layers on 25 devices. It falls with more layers, and with fewer devices, down
// to three tenths.
const refinements = 200000

// Plan is a plan as refining takes and returns it.
type Plan struct {
	Model       *costmodel.Model // for the plan's spread; plans of one spread share it
	GlobalBatch int              // samples of an iteration
	MicroBatch  int              // samples of a micro-batch
	Stages      []costmodel.Stage
}

// Run returns quicker plans than those given, at most one for each. job is the model without any spread; its size decides
// how much work is done. If ctx has already ended, Run still refines a little. progress is called, by one goroutine at a time,
// with how many steps are done, and their number.
func Run(ctx context.Context, job *costmodel.Model, plans []Plan, progress func(done, steps int)) []Plan {
	all := make([]*refinement, len(plans))
	each(len(plans), func(r *refiner, i int) {
		f := &refinement{model: plans[i].Model, rng: rand.New(rand.NewPCG(1, uint64(i))), batch: plans[i].GlobalBatch}
		r.take(f)
		f.best = r.draft(&plans[i])
		f.was = f.best
		all[i] = f
	})
	layers := len(job.Layers())
	if ctx.Err() != nil {
		hurry(context.WithoutCancel(ctx), all, hurried*32/max(32, layers))
	} else {
		prices := refinements * 32 / max(32, layers) / len(plans) * min(800, max(240, layers*job.Count())) / 800
		last, done := min(finalists, len(all)), 0
		var mu sync.Mutex
		search := func(prices int) func(*refiner, int) {
			return func(r *refiner, i int) {
				r.search(ctx, all[i], prices)
				mu.Lock()
				defer mu.Unlock()
				done++
				progress(done, len(all)+last)
			}
		}
		// Half of the work is for all plans, the other half for those that are then the quickest.
		each(len(all), search(prices/2))
		byPrice(all)
		each(last, search(prices*len(all)/2/last))
	}
	better := make([]Plan, len(all))
	each(len(all), func(r *refiner, i int) {
		if f := all[i]; f.best.over == 0 && f.best.beats(f.was) {
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
		return cmp.Or(cmp.Compare(a.best.over, b.best.over), cmp.Compare(a.best.price/float64(a.batch), b.best.price/float64(b.batch)))
	})
}

// each calls work for a number of plans on all processors. No two calls share a refiner at the same time. What a refiner remembers
// changes no price, so the result does not depend on which refiner does the work.
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

// search refines a plan by pricing this number of plans in descents, from the best plan and from changes of it.
func (r *refiner) search(ctx context.Context, f *refinement, prices int) {
	r.take(f)
	r.left = prices
	f.best = r.improve(ctx, r.descend(ctx, f.best))
}

// hurried is the number of plans of 32 layers that are priced after a search was interrupted.
const hurried = 24000

// hurry refines by successive halving (Jamieson and Talwalkar, 2016), with this number of prices in all: the same number for each
// plan, then twice as many for each plan of the quicker half, until one is left. The plan that wins often has another number of
// stages than the one that leads at first.
func hurry(ctx context.Context, all []*refinement, prices int) {
	rounds := bits.Len(uint(len(all)))
	portion := prices / max(1, rounds*len(all))
	for ; len(all) > 0; all, portion = all[:len(all)/2], 2*portion {
		each(len(all), func(r *refiner, i int) { r.search(ctx, all[i], portion) })
		byPrice(all)
	}
}

// finalists is the number of plans for which the second half of the work is done.
const finalists = 3

// refinement is a plan that is being refined, and the state from which work on it goes on.
type refinement struct {
	model     *costmodel.Model
	rng       *rand.Rand
	batch     int
	was, best *draft // at first, and so far
}

// take makes the refiner work on a refinement.
func (r *refiner) take(f *refinement) {
	r.model, r.rng, r.batch, r.micros = f.model, f.rng, f.batch, microBatches(f.model, f.batch)
	if r.known[r.model] == nil {
		m := &memory{times: r.model.ReplicaTimes(), pricer: r.model.Pricer()}
		for class, k := range r.model.Classes() {
			m.pool = append(m.pool, k.Count)
			m.tensors = append(m.tensors, r.model.SomeTensors(class))
		}
		r.known[r.model] = m
	}
	r.memory = r.known[r.model]
}

// microBatches are the divisors of a global batch, up to the largest micro-batch profiled times the number of devices.
func microBatches(m *costmodel.Model, batch int) []int {
	most := min(batch, m.Count()*m.LargestMicroBatch(), 1<<20)
	return slices.DeleteFunc(costmodel.Divisors(batch), func(b int) bool { return b > most })
}

// improve descends from random changes of the best draft, also where they no longer fit memory, and returns the best draft found.
func (r *refiner) improve(ctx context.Context, best *draft) *draft {
	for r.left > 0 && ctx.Err() == nil {
		d := best.clone()
		for range 1 + r.rng.IntN(3) {
			next, kinds := d.clone(), r.moves(d)
			if moves := kinds[r.rng.IntN(len(kinds))]; moves[r.rng.IntN(len(moves))](next) {
				d = next
			}
		}
		r.left--
		if r.value(d); math.IsInf(d.price, 1) {
			continue
		}
		if d = r.descend(ctx, d); d.beats(best) {
			best = d
		}
	}
	return best
}

// descend makes moves that help, in random order, until none does.
func (r *refiner) descend(ctx context.Context, d *draft) *draft {
	for {
		moves := slices.Concat(r.moves(d)...)
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
			if r.value(next); next.beats(d) {
				d, helped = next, true
				break
			}
		}
		if !helped {
			return d
		}
	}
}
