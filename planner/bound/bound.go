package bound

import (
	"cmp"
	"context"
	"math"
	"slices"

	"evenkeel/planner/costmodel"
)

const (
	work     = 3 << 28 // options priced: bounds the effort by a count, not by time, so that a job has one bound
	aims     = 3       // at most
	firstAim = 0.9     // of the known plan's time
	nearAim  = 0.99    // of an aim
)

// Lower is a number of seconds that no plan by 1F1B for a global batch takes less than, by formula or simulated, whatever its stages, groups,
// shares and strategies within the model's options. known is the time of a plan; the bound is at most that. It stops when ctx ends, and then is
// lower.
func Lower(ctx context.Context, m *costmodel.Model, globalBatch int, known float64) float64 {
	least := known
	for _, part := range parts(m) {
		least = min(least, part.lower(ctx, globalBatch, known))
	}
	return least
}

// lower bounds only the plans that take less than an aim; the others take the aim or more anyway. The fewer plans that are, the tighter is their
// bound. The first aim is below the known time. If all plans turn out to lie above it the next aim is higher; if not, it is closer to the bound.
func (m *model) lower(ctx context.Context, globalBatch int, known float64) float64 {
	best, shares := m.work(globalBatch)
	best = min(best, known)
	left, used := work*64/max(64, len(m.layers)), 0 // of work in all, and used by the aim before; a stage of more layers takes longer to price
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
		case v < aim && v > nearAim*aim: // no more than that is to be had
			return best
		case v < aim: // once more
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
	start []float64 // prices of devices of each class, in seconds, that the work alone suggests
	round int       // counts the prices that were tried
}

// below is a bound on all plans that take less than the aim; at most the aim.
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

// bounds bounds the plans of one micro-batch in several ways, each valid by itself.
type bounds struct {
	covers []*cover
	splits int
}

// cover is intervals that together hold all plans of a micro-batch that may take less than the aim.
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

// tries is how often every cover is refined before only the one with the largest bound is.
const tries = 4

// refine splits the lowest interval of the cover with the largest bound that can be split; false: none can.
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

// memoryPrices are some prices of a byte in seconds of an iteration, 0 the first: parts of the aim for a whole device's memory.
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
