package partition

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"

	"evenkeel/bucket"
)

// dealer combines batches into steps.
type dealer struct {
	cutter
	ranks  []int // of each place
	r      *rand.Rand
	cuts   [][]Cut // by class
	cycles int
	rest   int              // positions below this one are not cut
	more   map[int][]Placed // by step: additional batches of short samples
	shares []float64        // of each place
}

// windows sorts the batches of each class by duration and shuffles them within windows of one or more steps. In a window of several
// steps, no batch is shorter than the longest of its class by more than the tolerance.
func (d *dealer) windows() {
	for _, c := range d.cuts {
		SortCuts(c)
	}
	near := func(from, to int) bool { // whether step to may be in a window that begins with step from
		for k, class := range d.classes {
			n := len(class.slots)
			last := min((to+1)*n, len(d.cuts[k])) - 1
			if from*n <= last && d.cuts[k][last].Seconds < d.cuts[k][from*n].Seconds*(1-d.Tolerance) {
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

// step sets out to the batches of a step by place. A place may have none.
func (d *dealer) step(i int, out []Cut) {
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

// leastGap is the shortest wait, as a share of the step, that is filled with a batch.
const leastGap = 0.012

// room estimates how many of the shortest samples, at most rest, waiting places can take.
func (d *dealer) room(rest int) (used int) {
	if rest == 0 {
		return 0
	}
	d.waits(func(_, _ int, gap float64) {
		n, _ := d.filler(gap, min(used+1, rest))
		used = min(used+n, rest)
	})
	return used - used/16 // samples that do not fit would make a long step
}

// waits calls f for every place that waits long enough in its step to get another batch.
func (d *dealer) waits(f func(step, place int, gap float64)) {
	step := make([]Cut, d.places)
	for i := range d.cycles {
		d.step(i, step)
		most := 0.0
		for _, c := range step {
			most = max(most, c.Seconds)
		}
		for s, c := range step {
			if gap := most - c.Seconds; gap > leastGap*most {
				f(i, s, gap*d.shares[s])
			}
		}
	}
}

// filler is the number of samples before pos that fill a gap of some seconds, and the length that they are padded to; 0: a single sample
// fills too much of it.
func (d *dealer) filler(gap float64, pos int) (n, pad int) {
	pad = d.order.Pad(d.order.GroupAt(pos - 1))
	if d.Cost.Seconds(pad, 1) > gap*.75 {
		return 0, 0
	}
	return d.take(1<<31, pad, gap)
}

// fill gives waiting places batches of the shortest samples, starting with the places that wait longest.
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
			d.more[w.step] = append(d.more[w.step], Placed{bucket.Batch{Start: uint32(d.rest), Count: uint32(n), Rank: uint32(d.ranks[w.place])}, pad})
		}
	}
}

// assemble puts the steps in a random order.
func (d *dealer) assemble() *Epoch {
	out := &Epoch{Order: d.order, Steps: make([]uint32, 1, d.cycles+2)}
	step := make([]Cut, d.places)
	last := d.cutRest()
	turn := d.cycles + len(last)
	if d.crumbs(last) {
		// A step of their own would be short, so another step takes them.
		i := d.r.IntN(d.cycles)
		d.more[i] = append(d.more[i], last[0]...)
		turn--
	}
	for _, i := range d.r.Perm(turn) {
		from := len(out.Batches)
		if i >= d.cycles {
			out.Batches = append(out.Batches, last[i-d.cycles]...)
		} else {
			d.step(i, step)
			for s, c := range step {
				if c.Count > 0 {
					out.Batches = append(out.Batches, Placed{bucket.Batch{Start: c.Start, Count: c.Count, Rank: uint32(d.ranks[s])}, c.Longest})
				}
			}
			if more := d.more[i]; len(more) > 0 {
				out.Batches = append(out.Batches, more...)
				slices.SortStableFunc(out.Batches[from:], func(a, b Placed) int { return int(a.Rank) - int(b.Rank) })
			}
		}
		out.Steps = append(out.Steps, uint32(len(out.Batches)))
	}
	return out
}

// crumbs says whether the last samples are much less than a step, and may be added to another step.
func (d *dealer) crumbs(last [][]Placed) bool {
	if d.MicroBatches == 1 || len(last) != 1 || d.cycles == 0 {
		return false
	}
	b := last[0][0]
	of := b.Longest
	if of >= len(d.Target) { // two encoded lengths, which need not be those of any one sample
		of = d.row.Next(int(b.Start) + 1)
	}
	return d.Cost.Seconds(b.Longest, int(b.Count)) < d.Target[of]/8
}

// cutRest makes steps of what is left, which is usually less than one step. Every place takes what it finishes within a duration. The last
// step has the shortest duration with which nothing is left.
func (d *dealer) cutRest() (steps [][]Placed) {
	for d.rest > 0 {
		whole, left := d.within(d.rest, d.LongestBatch)
		if left > 0 {
			steps, d.rest = append(steps, whole), left
			continue
		}
		low, high := 0.0, d.LongestBatch
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

// within cuts one step from the longest sample down. Each batch stays within memory and, if it has more than one sample, within its share
// of the duration. left is the number of samples that are left.
func (d *dealer) within(rest int, duration float64) (out []Placed, left int) {
	at := make([]Placed, d.places)
	for _, c := range d.classes {
		for _, slot := range c.slots {
			if rest == 0 {
				break
			}
			longest := d.row.Next(rest)
			n, pad := d.row.Take(rest, longest, duration*c.share*(1+1e-9), d.Cost.Cap)
			rest -= n
			at[slot] = Placed{bucket.Batch{Start: uint32(rest), Count: uint32(n), Rank: uint32(d.ranks[slot])}, pad}
		}
	}
	return slices.DeleteFunc(at, func(b Placed) bool { return b.Count == 0 }), rest
}
