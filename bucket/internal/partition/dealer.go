package partition

import (
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
	rest   int // positions below this one are not cut
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

// assemble puts the steps in a random order.
func (d *dealer) assemble() *Epoch {
	out := &Epoch{Order: d.order, Steps: make([]uint32, 1, d.cycles+2)}
	step := make([]Cut, d.places)
	last := d.cutRest()
	for _, i := range d.r.Perm(d.cycles + len(last)) {
		if i >= d.cycles {
			out.Batches = append(out.Batches, last[i-d.cycles]...)
		} else {
			d.step(i, step)
			for s, c := range step {
				if c.Count > 0 {
					out.Batches = append(out.Batches, Placed{bucket.Batch{Start: c.Start, Count: c.Count, Rank: uint32(d.ranks[s])}, c.Longest})
				}
			}
		}
		out.Steps = append(out.Steps, uint32(len(out.Batches)))
	}
	return out
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
			if d.Cap(longest, c.share) < 1 {
				continue
			}
			n, pad := d.row.Take(rest, longest, duration*c.share*(1+1e-9), func(length int) int { return d.Cap(length, c.share) })
			rest -= n
			at[slot] = Placed{bucket.Batch{Start: uint32(rest), Count: uint32(n), Rank: uint32(d.ranks[slot])}, pad}
		}
	}
	return slices.DeleteFunc(at, func(b Placed) bool { return b.Count == 0 }), rest
}
