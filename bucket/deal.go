package bucket

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"
)

// cut is a batch before it has a rank.
type cut struct {
	Batch
	seconds float64 // divided by the share of its class
}

// dealer cuts an ordered epoch into batches that last about as long as an anchor duration, and combines batches that end together into steps. It
// does not look at single samples: batches are padded to the longest length of their groups.
type dealer struct {
	*Plan
	o       *order
	r       *rand.Rand
	ranks   []int // of each place
	classes []class
	group   int     // that of the last position
	cuts    [][]cut // by class
	cycles  int     // of a batch for each place
	rest    int     // positions below this one are not cut
}

// dispatch cuts an epoch: batches of the anchor duration, from the longest sample down; steps of random batches of similar duration; and last
// steps of what is left.
func (p *Plan) dispatch(l Lengths, seed, number uint64) *Schedule {
	o := newOrder(l, p.keys(seed, number))
	d := &dealer{Plan: p, o: o, r: rand.New(rand.NewPCG(seed, mix(number, 0))), group: len(o.start) - 3}
	d.ranks, d.classes = p.slots()
	d.cut()
	d.windows()
	s := &Schedule{Ranks: p.Ranks, Skipped: p.Skipped, plan: p, lengths: l, order: o}
	d.assemble(s)
	return s
}

// next is the length of a batch that begins with the sample before a position.
func (d *dealer) next(pos int) int {
	for d.o.start[d.group+1] < pos {
		d.group++
	}
	for d.o.start[d.group] >= pos {
		d.group--
	}
	return int(d.o.pad[d.group])
}

// take is the number of samples before a position that make a batch of a class of up to most seconds; at least one.
func (d *dealer) take(pos, longest int, most, share float64) int {
	return min(pos, within(d.cost, longest, d.cost.most(longest, share), most))
}

// A batch of few samples may last a little longer than the share of its place, up to the largest: one sample less would leave much of it unused.
const (
	fewShared = 6
	longer    = 1.05
)

// cut cuts the samples into batches that last up to the anchor times the share of their place. A single sample may last longer.
//
// A place whose share is too short for a sample, and not nearly the largest, waits for shorter samples. The first cycle has fewer samples, by a random
// part of a batch. That moves all later batches, so they differ between epochs even if nothing else is random. A last cycle that is less than half full
// is not cut.
func (d *dealer) cut() {
	d.cuts = make([][]cut, len(d.classes))
	before := make([]int, len(d.classes))
	shift := d.r.Float64()
	for pos := d.o.start[d.group+1]; pos > 0; d.cycles++ {
		begin, turn := pos, 0
		for k := range d.cuts {
			before[k] = len(d.cuts[k])
		}
		longest := d.next(pos)
		target := d.target[longest]
		fewer := shift * float64(d.take(pos, longest, target, 1))
		for k, class := range d.classes {
			for made := 0; len(d.cuts[k]) < (d.cycles+1)*len(class.slots) && made < 2*len(class.slots); made++ {
				if pos == 0 {
					if d.cycles++; turn*2 < len(d.ranks) {
						for k, n := range before {
							d.cuts[k] = d.cuts[k][:n]
						}
						d.cycles, d.rest = d.cycles-1, begin
					}
					return
				}
				longest = d.next(pos)
				if class.share < 1 && (d.cost.Seconds(longest, 1) > target*class.share/nearly || d.cost.most(longest, class.share) < 1) {
					break
				}
				n := d.take(pos, longest, target*class.share, class.share)
				if n < fewShared {
					n = d.take(pos, longest, target*min(1, longer*class.share), class.share)
				}
				if d.cycles == 0 {
					n = max(1, n-(int(fewer)+turn)/len(d.ranks))
				}
				turn++
				pos -= n
				d.cuts[k] = append(d.cuts[k], cut{Batch{Start: uint32(pos), Count: uint32(n), longest: uint32(longest)}, d.cost.Seconds(longest, n) / class.share})
			}
		}
	}
}

// windows sorts the batches of each class by duration and shuffles them within windows of one or more steps. In a window of several steps, no
// batch is shorter than the longest of its class by more than the tolerance.
func (d *dealer) windows() {
	for _, c := range d.cuts {
		slices.SortFunc(c, func(a, b cut) int { return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.Start, b.Start)) })
	}
	near := func(from, to int) bool { // whether step to may be in a window that begins with step from
		for k, class := range d.classes {
			n := len(class.slots)
			last := min((to+1)*n, len(d.cuts[k])) - 1
			if from*n <= last && d.cuts[k][last].seconds < d.cuts[k][from*n].seconds*(1-min(.5, waiting**d.Mixing)) {
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

// assemble puts the steps in a random order. A place may have no batch in a step.
func (d *dealer) assemble(out *Schedule) {
	out.Steps = make([]uint32, 1, d.cycles+2)
	last := d.cutRest()
	for _, i := range d.r.Perm(d.cycles + len(last)) {
		step := make([]Batch, len(d.ranks))
		for k, class := range d.classes {
			for j, slot := range class.slots {
				if at := i*len(class.slots) + j; i < d.cycles && at < len(d.cuts[k]) {
					step[slot] = d.cuts[k][at].Batch
					step[slot].Rank = uint32(d.ranks[slot])
				}
			}
		}
		if i >= d.cycles {
			step = last[i-d.cycles]
		}
		for _, b := range step {
			if b.Count > 0 {
				out.Batches = append(out.Batches, b)
			}
		}
		out.Steps = append(out.Steps, uint32(len(out.Batches)))
	}
}

// cutRest makes steps of what is left, which is usually less than one step. Every place takes what it finishes within a duration. The last
// step has the shortest duration with which nothing is left.
func (d *dealer) cutRest() (steps [][]Batch) {
	longest := d.cost.Seconds(d.Limit, d.cost.Cap(d.Limit))
	for d.rest > 0 {
		whole, left := d.step(d.rest, longest)
		if left > 0 {
			steps, d.rest = append(steps, whole), left
			continue
		}
		low, high := 0.0, longest
		for range 40 {
			middle := (low + high) / 2
			if b, left := d.step(d.rest, middle); left == 0 {
				whole, high = b, middle
			} else {
				low = middle
			}
		}
		return append(steps, whole)
	}
	return steps
}

// step cuts one step from the longest sample down. Each batch stays within memory and, if it has more than one sample, within its share of the
// duration. left is the number of samples that are left.
func (d *dealer) step(rest int, duration float64) (at []Batch, left int) {
	at = make([]Batch, len(d.ranks))
	for _, c := range d.classes {
		for _, slot := range c.slots {
			if rest == 0 {
				break
			}
			longest := d.next(rest)
			if d.cost.most(longest, c.share) < 1 {
				continue
			}
			n := d.take(rest, longest, duration*c.share, c.share)
			rest -= n
			at[slot] = Batch{uint32(rest), uint32(n), uint32(d.ranks[slot]), uint32(longest)}
		}
	}
	return at, rest
}

// predict scores the epoch without sorting the data set.
func (s *Schedule) predict() Score {
	c := newScorer(s.plan.Speeds)
	for i := range s.Len() {
		for _, b := range s.Step(i) {
			c.batch(s.plan.cost, int(b.Rank), int(b.longest), int(b.Count))
		}
		c.step()
	}
	_, c.tokens = s.plan.size()
	out := c.score()
	out.Skipped = s.Skipped
	return out
}
