package even

import (
	"cmp"
	"math"
	"slices"
)

// weights are the numbers of the bins and units while samples are exchanged.
type weights struct {
	*batch
	binOf      []int  // of each sample
	rank       []int  // of each sample in order
	end        []bool // of each sample: whether it may move; padded, only the first and the last of a bin in order: others between do no better
	load, used []tally
	time       []float64 // of each unit
	top        []float64 // of each slot
}

// tally is what a bin costs or takes, and its two largest samples.
type tally struct{ price, first, second float64 }

// none is no sample: what moves back if a sample only moves.
const none = -1

// exchange moves and swaps samples of the slowest unit of each slot, always by the best exchange, until none of them gets better. It returns the seconds of
// the batch.
func (b *batch) exchange() float64 {
	units := b.units()
	slots := units / b.ranks
	w := &weights{batch: b, binOf: make([]int, len(b.c)), rank: make([]int, len(b.c)), end: make([]bool, len(b.c)), load: make([]tally, len(b.members)), used: make([]tally, len(b.members)), time: make([]float64, units), top: make([]float64, slots)}
	for k, i := range b.order {
		w.rank[i] = k
	}
	for k := range b.members {
		w.weigh(k)
	}
	for u := range units {
		w.clock(u)
	}
	for k, idle := 0, 0; idle < slots; k, idle = (k+1)%slots, idle+1 {
		own := w.time[k*b.ranks : (k+1)*b.ranks]
		at, work := 0, 0.0
		for r, t := range own {
			if work += float64(t * b.v[r]); t > own[at] {
				at = r
			}
		}
		if own[at] <= work/sum(b.v)*(1+enough) {
			continue
		}
		if w.improve(k*b.ranks+at, k) {
			idle = -1
		}
	}
	return sum(w.top)
}

func (w *weights) weigh(bin int) {
	first, last := math.MaxInt, -1
	for _, i := range w.members[bin] {
		w.binOf[i] = bin
		first, last = min(first, w.rank[i]), max(last, w.rank[i])
	}
	for _, i := range w.members[bin] {
		w.end[i] = !w.Padded || w.rank[i] == first || w.rank[i] == last
	}
	w.load[bin], w.used[bin] = w.tally(bin, w.c), w.tally(bin, w.s)
}

func (w *weights) tally(bin int, x []float64) tally {
	t := tally{price: w.price(w.members[bin], x)}
	for _, i := range w.members[bin] {
		if x[i] > t.first {
			t.first, t.second = x[i], t.first
		} else {
			t.second = max(t.second, x[i])
		}
	}
	return t
}

func (w *weights) clock(unit int) {
	w.time[unit] = 0
	for bin := unit; bin < len(w.members); bin += len(w.time) {
		w.time[unit] += w.seconds(bin)
	}
	slot := unit / w.ranks
	w.top[slot] = slices.Max(w.time[slot*w.ranks : (slot+1)*w.ranks])
}

// seconds of a bin.
func (w *weights) seconds(bin int) float64 {
	if len(w.members[bin]) == 0 {
		return w.held[bin]
	}
	return (w.Fixed + w.load[bin].price) / w.speed(bin)
}

// after is what a bin costs or takes without sample i and with sample j.
func (w *weights) after(of []tally, x []float64, bin, i, j int) float64 {
	t, out, in := of[bin], 0.0, 0.0
	n := len(w.members[bin])
	if i != none {
		out, n = x[i], n-1
	}
	if j != none {
		in, n = x[j], n+1
	}
	if !w.Padded {
		return t.price - out + in
	}
	largest := t.first
	if i != none && out == t.first {
		largest = t.second
	}
	return float64(n) * max(largest, in)
}

// exchange of one sample of a unit for a sample of another, or none.
type exchange struct {
	i, j, from, to int
	gain, longest  float64 // of the batch; of both units
}

// improve makes the best exchange of a sample of the slowest unit of a slot, if there is one.
func (w *weights) improve(unit, slot int) bool {
	most, rest := w.time[unit], 0.0
	for u := slot * w.ranks; u < (slot+1)*w.ranks; u++ {
		if u != unit {
			rest = max(rest, w.time[u])
		}
	}
	best := exchange{gain: -1}
	own := w.batch.samples(unit)
	for from := unit; from < len(w.members); from += len(w.time) {
		all := slices.DeleteFunc(slices.Clone(w.members[from]), func(i int) bool { return !w.end[i] })
		slices.Sort(all)
		for _, i := range all {
			try := func(j, to int) {
				if e, ok := w.try(exchange{i: i, j: j, from: from, to: to}, unit, slot, own, most, rest); ok &&
					cmp.Or(cmp.Compare(e.gain, best.gain), cmp.Compare(best.longest, e.longest)) > 0 {
					best = e
				}
			}
			for j, to := range w.binOf {
				if w.end[j] && w.batch.unit(to) != unit {
					try(j, to)
				}
			}
			for to := range w.members {
				if w.batch.unit(to) != unit && !w.pinned(to) {
					try(none, to)
				}
			}
		}
	}
	if best.gain < 0 {
		return false
	}
	move := func(sample, from, to int) {
		if sample != none {
			w.members[from] = slices.DeleteFunc(w.members[from], func(k int) bool { return k == sample })
			w.members[to] = append(w.members[to], sample)
		}
	}
	move(best.i, best.from, best.to)
	move(best.j, best.to, best.from)
	for _, bin := range []int{best.from, best.to} {
		w.weigh(bin)
		w.clock(w.batch.unit(bin))
	}
	return true
}

// try says what an exchange gains, and whether it may be made.
func (w *weights) try(e exchange, unit, slot, own int, most, rest float64) (exchange, bool) {
	last := len(w.members[e.from]) == 1 && e.j == none
	if e.j == none && own == 1 || last && !w.Free ||
		w.after(w.used, w.s, e.from, e.i, e.j) > w.room(e.from) || w.after(w.used, w.s, e.to, e.j, e.i) > w.room(e.to) {
		return e, false
	}
	here, target := 0.0, w.batch.unit(e.to)
	if !last {
		here = (w.Fixed + w.after(w.load, w.c, e.from, e.i, e.j)) / w.speed(e.from)
	}
	here = most - w.seconds(e.from) + here
	there := w.time[target] - w.seconds(e.to) + (w.Fixed+w.after(w.load, w.c, e.to, e.j, e.i))/w.speed(e.to)
	e.longest = max(here, there)
	// Without a gain, the unit must leave the slowest of its slot, and the other must not join them.
	less, other := most*(1-enough), target/w.ranks
	e.gain = most - max(rest, here) - max(0, there-w.top[other])
	tie := here < less && there < w.top[other]*(1-enough)
	if other == slot {
		e.gain, tie = most-max(rest, e.longest), e.longest < less
	}
	if math.Abs(e.gain) <= most*enough/10 {
		e.gain = 0
	}
	return e, e.gain > 0 || e.gain == 0 && tie
}
