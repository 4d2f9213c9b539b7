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
	// Skipped counts the samples that no batch can hold, left out on request.
	Skipped int
	// Progress reports how many steps Lines has given, of how many; may be nil.
	Progress func(done, total int)

	lengths Lengths
	limit   int // longest length that is batched
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

// cut is a batch before it has a rank.
type cut struct {
	start, count uint32
	seconds      float64
}

// cutSorted cuts the samples from the longest down into batches of the most efficient
// size, or in small data sets of a duration with which they fill EvenSteps steps, sorts the
// batches by duration and makes a step of each group. The last group is dealt evenly.
func (p *Plan) cutSorted(o *order, seed, epoch uint64) ([]uint32, []Batch) {
	r := rand.New(rand.NewPCG(seed, mix(epoch, 0)))
	all := slots(p.Speeds, p.SlowestBatches)
	perStep := len(all)
	shift := r.Float64()
	limit := math.Inf(1)
	if p.EvenSteps > 0 {
		limit = p.evenLimit(o, all, shift)
	}
	cuts := p.cutBy(o, all, limit, shift)
	groups := max(0, len(cuts)-1) / perStep
	rest := o.start[p.limit+1]
	if groups > 0 {
		rest = int(cuts[groups*perStep-1].start)
	}
	cuts = cuts[:groups*perStep]
	if !trimmed(all) {
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
	var last []Batch
	turn := groups
	if rest > 0 {
		last = p.cutRest(o, rest, all)
		turn++
	}
	steps := make([]uint32, 1, turn+1)
	batches := make([]Batch, 0, len(cuts)+len(last))
	for _, g := range r.Perm(turn) {
		if g == groups {
			batches = append(batches, last...)
		} else {
			for k, c := range cuts[g*perStep : (g+1)*perStep] {
				batches = append(batches, Batch{c.start, c.count, uint32(all[k].rank)})
			}
		}
		steps = append(steps, uint32(len(batches)))
	}
	return steps, batches
}

// cutBy cuts all samples into batches that last no longer than the limit, scaled by their
// slots. One group has fewer samples, by up to a batch in all as shift, 0 to 1, says: that
// moves all after it, so groups are cut afresh each epoch. It is the first that can; where
// batches are few, so that one uneven step counts, the first with enough samples.
func (p *Plan) cutBy(o *order, all []slot, limit, shift float64) []cut {
	cuts := make([]cut, 0, min(p.Steps*len(all), o.start[p.limit+1]))
	enough := 2
	if p.Steps*len(all) <= fewBatches {
		enough = max(2, min(8, slices.Max(p.best)))
	}
	trim, shifted := trimmed(all), false
	l := p.limit
	target, fewer := 0.0, 0 // of the group: duration on a slot of share 1, samples
	for pos := o.start[p.limit+1]; pos > 0; {
		for o.start[l] >= pos {
			l--
		}
		n := p.best[l]
		k := len(cuts) % len(all)
		if k == 0 {
			target = min(limit, p.cost.Seconds(l, n))
		}
		if most := all[k].share * target * (1 + 1e-9); trim || p.cost.Seconds(l, n) > most {
			n = max(1, sort.Search(n, func(b int) bool { return p.cost.Seconds(l, b+1) > most }))
		}
		if k == 0 {
			if fewer = 0; !shifted && n >= enough {
				shifted, fewer = true, int(shift*float64(n))
			}
		}
		n = min(max(1, n-(fewer+k)/len(all)), pos)
		pos -= n
		cuts = append(cuts, cut{uint32(pos), uint32(n), p.cost.Seconds(l, n)})
	}
	return cuts
}

// evenLimit is the shortest duration of a batch with which the samples fill EvenSteps steps
// and no more, to a part in 10^5.
func (p *Plan) evenLimit(o *order, all []slot, shift float64) float64 {
	low, high := 0.0, 0.0
	for l := range p.hist {
		if p.hist[l] > 0 {
			high = max(high, p.cost.Seconds(l, p.best[l]))
		}
	}
	for high-low > high*1e-5 {
		middle := (low + high) / 2
		if len(p.cutBy(o, all, middle, shift)) <= p.EvenSteps*len(all) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}
