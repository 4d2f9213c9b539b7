package costmodel

import (
	"cmp"
	"math"
	"slices"
)

// head is the cheapest way to run the first layers as the first stage, before the busiest or itself the busiest. What comes once
// in the first stage follows all its passes, while other stages' overlaps the last passes of those before them.
//
// As the busiest it takes M v and what comes once, of which the bound has M low already; but for the idle time, which falls with v, it has
// low as well, so that seconds may be too many: by how fast it falls.
type head struct {
	before, last part // the last before the busiest is directly before it
	busiest      []part
}

// falls are how fast the idle time of the busiest stage may fall with its time, rising to the most.
func (o *interval) falls(stages int) (all []float64) {
	most := max(min(float64(stages), o.micro-2), (o.micro-1)/2)
	for f := 0.0; ; f = max(1, 2*f) {
		if f >= most {
			return append(all, most)
		}
		all = append(all, f)
	}
}

func (b *bounder) head(o *interval, all *ways, falls, prices []float64) *head {
	n := len(prices)
	x := &head{busiest: make([]part, len(falls))}
	used := make([]float64, n*(2+len(falls)))
	for i, p := range x.parts() {
		*p = part{math.Inf(1), used[i*n : (i+1)*n]}
	}
	before, last, busy, later := o.head()
	for k := range all.pure {
		w := &all.pure[k]
		devices := prices[w.class] * w.devices
		x.before.lower(devices+before(w), w.class, w.devices)
		x.last.lower(devices+last(w), w.class, w.devices)
		if o.busy(w) >= o.least() {
			for i, f := range falls {
				x.busiest[i].lower(devices+later(w.busy, f), w.class, w.devices)
			}
		}
	}
	for i, cost := range []func(*way) float64{before, last} {
		p := x.parts()[i]
		b.share(o, b.sorted(all, i, cost), cost, prices, func(cost, _, _, devices float64, used []float64) { p.take(devices+cost, used) })
	}
	b.share(o, b.sorted(all, 2, busy), busy, prices, func(busy, _, _, devices float64, used []float64) {
		if busy < o.least() {
			return
		}
		for i, f := range falls {
			x.busiest[i].take(devices+later(busy, f), used)
		}
	})
	return x
}

// head are the costs of a way as the first stage: before the busiest and directly before it; how busy it is, and what this costs where it is
// the busiest.
func (o *interval) head() (before, last, busy func(*way) float64, later func(busy, falls float64) float64) {
	before = func(w *way) float64 {
		first := max(w.step, w.first)
		if !o.assigned {
			first = max(first, w.busy-(o.micro-1)*o.high)
		}
		return (1-o.overlap)*first + o.overlap*(w.forward+w.send/2)
	}
	last = func(w *way) float64 { return before(w) - o.sent()*w.send }
	busy = func(w *way) float64 { return w.busy }
	later = func(busy, falls float64) float64 {
		if later := max(0, busy-o.micro*o.low); o.assigned {
			return later * (1 - falls/o.micro)
		}
		return max(0, busy-o.micro*o.low-falls*(o.high-o.low))
	}
	return before, last, busy, later
}

func (x *head) parts() []*part {
	all := []*part{&x.before, &x.last}
	for i := range x.busiest {
		all = append(all, &x.busiest[i])
	}
	return all
}

// sent is how much of its sending does not count for a stage directly before the busiest, for which it counts as received.
func (o *interval) sent() float64 { return 1 - o.overlap/2 }

// least is the least time of an iteration that the busiest stage's way takes.
func (o *interval) least() float64 {
	if !o.assigned {
		return 0
	}
	return o.low * o.micro * (1 - 1e-12)
}

// sorted are the ways of groups that share a stage by an order that prices do not change.
func (b *bounder) sorted(all *ways, order int, by func(*way) float64) [][]way {
	if all.sorted[order] == nil {
		sorted := make([][]way, len(all.mixed))
		for class, m := range all.mixed {
			sorted[class] = slices.Clone(m)
			slices.SortStableFunc(sorted[class], func(x, y way) int { return cmp.Compare(by(&x), by(&y)) })
		}
		all.sorted[order] = sorted
	}
	return all.sorted[order]
}
