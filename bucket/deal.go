package bucket

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/ordering"
)

// dispatch cuts an epoch: the order by length, jittered; batches of the anchor duration from the longest down; steps of
// batches drawn from those of similar duration; short samples beside batches that end early; and one step more of what is left.
func (p *Plan) dispatch(l Lengths, full []uint32, seed, epoch uint64) *dispatched {
	o := p.order(l, full, seed, epoch)
	r := rand.New(rand.NewPCG(seed, ordering.Mix(epoch, 0)))
	d := &dealer{r: r, more: map[int][]placed{}}
	d.ranks, d.classes = slots(p.Speeds, p.MicroBatches)
	d.cutter = cutter{p: p, o: o, classes: d.classes, places: len(d.ranks), shift: r.Float64(), enough: 2, late: p.EvenSteps / 10}
	if p.knobs.loose || p.two != nil {
		if o.index == nil {
			o.fill(l)
		}
		d.cutter.l = l
	}
	if p.two != nil {
		d.sides = p.two.lined(l, o.index)
	}
	if d.few = p.EvenSteps > 0 && p.EvenSteps*p.Ranks <= fewBatches; d.few {
		d.enough = max(2, min(8, slices.Max(p.best)))
	}
	d.shares = make([]float64, len(d.ranks))
	for _, c := range d.classes {
		for _, s := range c.slots {
			d.shares[s] = c.share
		}
	}
	end := o.start[len(o.start)-2]
	scale := 1.0
	cutAll := func(stop int) {
		switch {
		case p.FreeCut && len(d.classes) == 1:
			d.cutFreely(end)
			return
		case p.StepDurations:
			d.shift, d.durations = 0, d.stepDurations(end, stop, p.EvenSteps)
			scale = 0
			for _, t := range d.durations {
				scale += t / slices.Max(p.target) / float64(len(d.durations))
			}
		case p.EvenSteps > 0:
			scale = d.even(p.EvenSteps, end, stop)
		}
		d.cuts, d.cycles, d.rest, _ = d.all(scale, end, stop)
		d.windows()
	}
	cutAll(0)
	room := 0
	for range 3 {
		if p.StepDurations {
			break // there is next to no wait
		}
		more := d.room(end / 2)
		if more <= room {
			break
		}
		room = more // is not cut, but fills what waits beside the others
		cutAll(room)
	}
	if room > 0 {
		d.fill()
	}
	out := d.assemble()
	out.scale = scale
	return out
}

// dealer makes steps of cuts.
type dealer struct {
	cutter
	ranks  []int // of the places
	r      *rand.Rand
	cuts   [][]cut // by class
	cycles int
	rest   int              // so many positions are not cut
	more   map[int][]placed // by step, beside its cuts
	shares []float64        // of the places
}

// windows sorts each class by duration and shuffles it within windows, in which no batch is shorter than the longest by
// more than the tolerance.
func (d *dealer) windows() {
	for _, c := range d.cuts {
		slices.SortFunc(c, func(a, b cut) int {
			switch {
			case a.seconds > b.seconds:
				return -1
			case a.seconds < b.seconds:
				return 1
			case a.start < b.start:
				return -1
			}
			return 1
		})
	}
	near := func(from, to int) bool { // whether the step to may join those from from on
		for k, class := range d.classes {
			n := len(class.slots)
			last := min((to+1)*n, len(d.cuts[k])) - 1
			if from*n <= last && d.cuts[k][last].seconds < d.cuts[k][from*n].seconds*(1-d.p.Tolerance) {
				return false
			}
		}
		return true
	}
	for from := 0; from < d.cycles; {
		to := from + sort.Search(d.cycles-from-1, func(n int) bool { return !near(from, from+n+1) }) + 1
		for k, class := range d.classes {
			n := len(class.slots)
			part := d.cuts[k][min(from*n, len(d.cuts[k])):min(to*n, len(d.cuts[k]))]
			d.r.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
		}
		from = to
	}
}

// step is the cuts of one, by place; those of no samples wait.
func (d *dealer) step(i int, out []cut) {
	clear(out)
	for k, class := range d.classes {
		n := len(class.slots)
		for j, slot := range class.slots {
			if at := i*n + j; at < len(d.cuts[k]) {
				out[slot] = d.cuts[k][at]
			}
		}
	}
}

// leastGap is the share of a step below which waiting is not worth a micro-batch.
const leastGap = 0.012

// room is how many of the shortest samples, so many at the most, the waiting places take.
func (d *dealer) room(rest int) (used int) {
	if rest == 0 {
		return 0
	}
	d.waits(func(_, _ int, gap float64) {
		n, _ := d.filler(gap, min(used+1, rest))
		used = min(used+n, rest)
	})
	return used - used/16 // where more is left than fits, it makes a long step
}

// waits tells of every place that waits worthwhile time in its step.
func (d *dealer) waits(f func(step, place int, gap float64)) {
	if d.p.MicroBatches == 1 || d.l != nil {
		return
	}
	step := make([]cut, d.places)
	for i := range d.cycles {
		d.step(i, step)
		most := 0.0
		for _, c := range step {
			most = max(most, c.seconds)
		}
		for s, c := range step {
			if gap := most - c.seconds; gap > leastGap*most {
				f(i, s, gap*d.shares[s])
			}
		}
	}
}

// filler is how many samples below a position fill a gap; none if they were too few to be worth it.
func (d *dealer) filler(gap float64, pos int) (n, pad int) {
	pad = int(d.o.pad[d.o.group(pos-1)])
	if d.p.cost.Seconds(pad, 1) > gap*.75 {
		return 0, 0
	}
	return d.take(1<<31, pad, gap, d.best)
}

// fill takes batches for waiting places off the shortest samples, for those that wait longest first.
func (d *dealer) fill() {
	type waiting struct {
		step, place int
		gap         float64
	}
	var all []waiting
	d.waits(func(step, place int, gap float64) { all = append(all, waiting{step, place, gap}) })
	slices.SortStableFunc(all, func(a, b waiting) int { return cmp.Compare(b.gap, a.gap) })
	for _, w := range all {
		if d.rest == 0 {
			return
		}
		if n, pad := d.filler(w.gap, d.rest); n > 0 {
			n = min(n, d.rest)
			d.rest -= n
			d.more[w.step] = append(d.more[w.step], placed{Batch{uint32(d.rest), uint32(n), uint32(d.ranks[w.place])}, pad})
		}
	}
}

// assemble puts the steps in a random order.
func (d *dealer) assemble() *dispatched {
	out := &dispatched{o: d.o, steps: make([]uint32, 1, d.cycles+2)}
	step := make([]cut, d.places)
	last := d.cutRest()
	turn := d.cycles + len(last)
	if d.crumbs(last) {
		// They would be a step of their own: as well a part of another.
		i := d.r.IntN(d.cycles)
		d.more[i] = append(d.more[i], last[0]...)
		turn--
	}
	for _, i := range d.r.Perm(turn) {
		from := len(out.batches)
		if i >= d.cycles {
			out.batches = append(out.batches, last[i-d.cycles]...)
		} else {
			d.step(i, step)
			for s, c := range step {
				if c.count > 0 {
					out.batches = append(out.batches, placed{Batch{c.start, c.count, uint32(d.ranks[s])}, c.longest})
				}
			}
			if more := d.more[i]; len(more) > 0 {
				out.batches = append(out.batches, more...)
				slices.SortStableFunc(out.batches[from:], func(a, b placed) int { return int(a.Rank) - int(b.Rank) })
			}
		}
		out.steps = append(out.steps, uint32(len(out.batches)))
	}
	return out
}

// crumbs says whether what is left is much less than a step and may join one.
func (d *dealer) crumbs(last [][]placed) bool {
	if d.p.MicroBatches == 1 || len(last) != 1 || d.cycles == 0 {
		return false
	}
	b := last[0][0]
	of := b.longest
	if d.p.two != nil {
		of = int(d.l[d.o.index[b.Start]])
	}
	return d.p.cost.Seconds(b.longest, int(b.Count)) < d.p.target[of]/8
}

// placed is a batch and what it is padded to.
type placed struct {
	Batch
	longest int
}

// cutRest makes steps of what is left, usually less than one: every place takes what it finishes within a duration, in the
// last step the smallest with which all are taken.
func (d *dealer) cutRest() (steps [][]placed) {
	for d.rest > 0 {
		most := d.p.cost.Seconds(d.p.limit, d.p.cost.Cap(d.p.limit))
		if d.p.two != nil {
			most = d.p.longestStep()
		}
		whole, left := d.within(d.rest, most)
		if left > 0 {
			steps, d.rest = append(steps, whole), left
			continue
		}
		low, high := 0.0, most
		for range 40 {
			middle := (low + high) / 2
			if b, left := d.within(d.rest, middle); left == 0 {
				whole, high = b, middle
			} else {
				low = middle
			}
		}
		return append(steps, whole)
	}
	return steps
}

// within cuts from the longest down, each place's batch within its share of the duration
// and within memory, and returns how many positions are left.
func (d *dealer) within(rest int, duration float64) (out []placed, left int) {
	group := d.o.group(rest - 1)
	at := make([]placed, d.places)
	for _, c := range d.classes {
		for _, slot := range c.slots {
			if rest == 0 {
				break
			}
			longest := d.next(rest, &group)
			n, pad := d.take(rest, longest, duration*c.share, d.p.cost.Cap)
			rest -= n
			at[slot] = placed{Batch{uint32(rest), uint32(n), uint32(d.ranks[slot])}, pad}
		}
	}
	return slices.DeleteFunc(at, func(b placed) bool { return b.Count == 0 }), rest
}
