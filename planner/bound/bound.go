package bound

import (
	"cmp"
	"context"
	"math"
	"slices"

	"evenkeel/planner/costmodel"
)

const (
	work     = 3 << 28 // options to price: a count, not a time, limits the effort, so that a job always has the same bound
	aims     = 3       // at most
	firstAim = 0.9     // of the known plan's time
	nearAim  = 0.99    // of an aim
)

// Lower is a lower bound, in seconds, on the iteration time of every 1F1B plan for a global batch within the model's
// options, by formula and simulated. known is the time of a plan; the bound is at most that. If ctx ends early, the bound
// is lower, but still valid.
func Lower(ctx context.Context, m *costmodel.Model, globalBatch int, known float64) float64 {
	least := known
	for _, part := range parts(m) {
		least = min(least, part.lower(ctx, globalBatch, known))
	}
	return least
}

// lower bounds only the plans that take less than an aim; all others take at least the aim. Fewer plans have a tighter
// bound. The first aim is below the known time. If no plan is below it, the next aim is higher; otherwise it is closer to
// the bound.
func (m *model) lower(ctx context.Context, globalBatch int, known float64) float64 {
	best, shares := m.work(globalBatch)
	best = min(best, known)
	left, used := work*64/max(64, len(m.layers)), 0 // work left, and used for the last aim; more layers take longer to price
	aim := max(best, firstAim*known)
	for k := aims; k > 0 && left > used/2 && ctx.Err() == nil; k-- {
		b := &bounder{model: *m, batch: globalBatch, aim: aim, left: left}
		for c, share := range shares {
			b.start = append(b.start, aim*share/m.count(c))
		}
		v := b.below(ctx)
		left, used = b.left, left-b.left
		best = max(best, v)
		switch {
		case v < aim && v > nearAim*aim: // more work would not help
			return best
		case v < aim: // try once more
			aim, k = (3*best+aim)/4, min(k, 2)
		case k == aims:
			aim = (aim + known) / 2
		default:
			aim = known
		}
	}
	return best
}

// bounder bounds the plans that take less than an aim.
type bounder struct {
	model
	batch int       // samples of an iteration
	aim   float64   // seconds
	left  int       // options that it may still price
	start []float64 // by class: the price of a device in seconds, as bound.Work suggests
	round int       // number of prices tried
}

// below bounds all plans that take less than the aim. It returns at most the aim.
func (b *bounder) below(ctx context.Context) float64 {
	var all []*bounds
	for _, samples := range b.microBatches(b.batch) {
		if ctx.Err() != nil {
			return 0
		}
		all = append(all, b.boundsOf(samples))
	}
	if len(all) == 0 {
		return 0
	}
	lowest := func() *bounds {
		return slices.MinFunc(all, func(x, y *bounds) int { return cmp.Compare(x.value(), y.value()) })
	}
	for b.left > 0 && ctx.Err() == nil {
		if x := lowest(); x.value() >= b.aim || !b.refine(x) {
			break
		}
	}
	return min(b.aim, lowest().value()*(1-1e-9)) // rounding must not lift it above a plan
}

// bounds are several valid bounds on the plans of one micro-batch.
type bounds struct {
	covers []*cover
	splits int
}

// cover is a set of intervals. Together they hold all plans of a micro-batch that may take less than the aim.
type cover struct{ open []*interval }

func (c *cover) lowest() *interval {
	return slices.MinFunc(c.open, func(x, y *interval) int { return cmp.Compare(x.bound, y.bound) })
}

// value is the least bound of an interval.
func (c *cover) value() float64 {
	if len(c.open) == 0 {
		return math.Inf(1)
	}
	return c.lowest().bound
}

// value is the largest of the bounds.
func (x *bounds) value() float64 {
	most := math.Inf(-1)
	for _, c := range x.covers {
		most = max(most, c.value())
	}
	return most
}

// tries is the number of rounds that refine every cover. Later rounds refine only the one with the largest bound.
const tries = 4

// refine splits the lowest interval of the cover with the largest bound. If it cannot be split, it tries the next cover.
// False: no cover can be split.
func (b *bounder) refine(x *bounds) bool {
	if x.splits++; x.splits < tries {
		for _, c := range x.covers {
			if len(c.open) > 0 {
				b.split(c)
			}
		}
		return true
	}
	slices.SortStableFunc(x.covers, func(x, y *cover) int { return cmp.Compare(y.value(), x.value()) })
	return slices.ContainsFunc(x.covers, func(c *cover) bool { return len(c.open) > 0 && b.split(c) })
}

// boundsOf bounds all plans of a micro-batch of so many samples.
func (b *bounder) boundsOf(samples int) *bounds {
	micro := float64(b.batch / samples)
	prices := b.memoryPrices()
	floors := b.floors(samples, prices)
	n := len(b.layers)
	known := map[[3]int32]*options{}
	runs := make([][]*options, n)
	for from := range n {
		runs[from] = make([]*options, n-from)
		for to := from + 1; to <= n; to++ {
			// Options depend on what the layers cost, and on whether the stage sends and receives.
			k := [3]int32{b.Run(from, to), int32(to / n), int32(min(from, 1))}
			w, ok := known[k]
			if !ok {
				w = b.optionsOf(floors, from, to, micro, prices)
				known[k] = w
			}
			runs[from][to-from-1] = w
		}
	}
	x := &bounds{}
	for _, y := range []float64{0, 0.5} {
		o := &interval{micro: micro, once: y, received: micro - y/2, high: b.aim / micro, prices: slices.Clone(b.start), runs: runs}
		b.narrow(o)
		b.improve(o)
		x.covers = append(x.covers, &cover{[]*interval{o}})
	}
	return x
}

// memoryPrices are prices of a byte, in seconds of an iteration. The first is 0; at the others the memory of a whole
// device costs a part of the aim.
func (b *bounder) memoryPrices() []float64 {
	largest := 0.0
	for class := range b.classes {
		largest = max(largest, b.Room(class))
	}
	prices := []float64{0}
	for _, part := range []float64{0.03, 0.1, 0.3, 1, 3} {
		prices = append(prices, part*b.aim/largest)
	}
	return prices
}
