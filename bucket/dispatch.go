package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// Batch is what one rank computes at once: Count samples from position Start of the
// epoch's order. Rank comes beside; a rank may have several batches in a step, which it
// computes one after another, accumulating gradients.
type Batch struct {
	Start, Count uint32
	Rank         uint32
}

// Schedule is one epoch. Step i is Batches[Steps[i]:Steps[i+1]], sorted by rank.
type Schedule struct {
	Ranks   int
	Steps   []uint32
	Batches []Batch
	// Skipped are samples that no batch can hold, left out by the user's choice.
	Skipped int
	// Tell is told how many steps Lines has given, of how many; may be nil.
	Tell func(done, total int)

	lengths Lengths
	order   *order
}

// Len is the number of steps.
func (s *Schedule) Len() int { return len(s.Steps) - 1 }

// Step is the batches of one step.
func (s *Schedule) Step(i int) []Batch { return s.Batches[s.Steps[i]:s.Steps[i+1]] }

// Samples are a batch's, as positions in the data set. The first call sorts the data set
// unless Fill did; not to be changed.
func (s *Schedule) Samples(b Batch) []uint32 {
	s.Fill()
	return s.order.index[b.Start : b.Start+b.Count]
}

// Fill sorts the data set: 4 bytes a sample.
func (s *Schedule) Fill() {
	if s.order.index == nil {
		s.order.fill(s.lengths)
	}
}

// First is a step's samples, per batch, without sorting the data set: one pass over it.
func (s *Schedule) First(step int) [][]uint32 {
	return s.order.some(s.lengths, s.Step(step))
}

// slot is a place for a batch in each step.
type slot struct {
	rank int
	// share of the most efficient batch's duration that this slot may take on a rank of
	// speed 1: rank of slots per step and speed.
	share float64
}

// slots gives faster ranks several batches per step: rank r gets about k times its speed
// over the slowest's, at most 64. A rank between whole numbers has one more, each a
// little smaller.
func slots(speeds []float64, k int) (out []slot) {
	slowest := slices.Min(speeds)
	for r, v := range speeds {
		want := min(64, float64(k)*v/slowest)
		n := int(math.Ceil(want - 1e-9))
		for range n {
			out = append(out, slot{r, min(1, want/float64(n))})
		}
	}
	return out
}

// trimmed says whether a rank stands between whole numbers.
func trimmed(all []slot) bool {
	return slices.ContainsFunc(all, func(s slot) bool { return s.share < 1 })
}

// cutSorted cuts the samples from the longest down into batches of the most efficient
// size, sorts the batches by duration and makes a step of each full group.
func (p *Plan) cutSorted(o *order, seed, epoch uint64) ([]uint32, []Batch) {
	r := rand.New(rand.NewPCG(seed, mix(epoch, 0)))
	all := slots(p.Speeds, p.SlowestBatches)
	trim := trimmed(all)
	perStep := len(all)
	top := o.start[p.limit+1]
	type cut struct {
		start, count uint32
		seconds      float64
	}
	var cuts []cut
	l := p.limit
	target := 0.0
	for pos := top; pos > 0; {
		for o.start[l] >= pos {
			l--
		}
		n := max(1, int(float64(p.best[l])*p.BatchShare))
		if len(cuts) == 0 && n > 1 {
			n -= int(r.Uint64N(uint64(n+1) / 2)) // groups are cut afresh each epoch
		}
		if trim {
			k := len(cuts) % perStep
			if k == 0 {
				target = p.cost.Seconds(l, n)
			}
			limit := all[k].share * target
			n = max(1, sort.Search(n, func(b int) bool { return p.cost.Seconds(l, b+1) > limit*(1+1e-9) }))
		}
		n = min(n, pos)
		pos -= n
		cuts = append(cuts, cut{uint32(pos), uint32(n), p.cost.Seconds(l, n)})
	}
	whole := len(cuts) / perStep * perStep
	rest := top
	if whole > 0 {
		rest = int(cuts[whole-1].start)
	}
	cuts = cuts[:whole]
	if !trim {
		slices.SortFunc(cuts, func(a, b cut) int {
			switch {
			case a.seconds < b.seconds:
				return -1
			case a.seconds > b.seconds:
				return 1
			case a.start < b.start:
				return -1
			}
			return 1
		})
	}
	batches := make([]Batch, 0, len(cuts)+perStep)
	for i, c := range cuts {
		s := all[i%perStep]
		batches = append(batches, Batch{c.start, c.count, uint32(s.rank)})
	}
	ends := make([]uint32, 1, whole/perStep+2)
	for i := perStep; i <= whole; i += perStep {
		ends = append(ends, uint32(i))
	}
	if rest > 0 {
		batches = append(batches, p.cutRest(o, rest, all)...)
		ends = append(ends, uint32(len(batches)))
	}
	return shuffleSteps(r, ends, batches)
}
