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

// First is a step's samples, per batch, without sorting the data set: one pass over it, or
// one a batch where their lengths lie far apart.
func (s *Schedule) First(step int) [][]uint32 {
	var out [][]uint32
	low, high := len(s.lengths), 0
	for _, b := range s.Step(step) {
		low, high = min(low, int(b.Start)), max(high, int(b.Start+b.Count))
	}
	if high-low < 1<<24 { // neighbours: one pass for all
		all := s.order.some(s.lengths, low, high)
		for _, b := range s.Step(step) {
			out = append(out, all[int(b.Start)-low:int(b.Start+b.Count)-low])
		}
		return out
	}
	for _, b := range s.Step(step) {
		out = append(out, s.order.some(s.lengths, int(b.Start), int(b.Start+b.Count)))
	}
	return out
}

// slot is a place for a batch in each step.
type slot struct {
	rank int
	// share of the most efficient batch's duration that this slot may take on a rank of
	// speed 1: rank of slots per step and speed.
	share float64
}

// slots gives faster ranks several batches per step: rank r gets about k times its speed
// over the slowest's, for the k of 1 to 8 that needs the least trimming. A rank between
// whole numbers has one more, each a little smaller.
func slots(speeds []float64) []slot {
	slowest := slices.Min(speeds)
	var best []slot
	loss := math.Inf(1)
	for k := 1; k <= 8; k++ {
		var s []slot
		trimmed, total := 0.0, 0.0
		for r, v := range speeds {
			want := float64(k) * v / slowest
			n := int(math.Ceil(want - 1e-9))
			if n > 64 {
				n = 64
				want = min(want, 64)
			}
			for range n {
				s = append(s, slot{r, min(1, want/float64(n))})
			}
			trimmed += float64(n) - want
			total += want
		}
		// A larger k means larger steps: it has to be worth it.
		if l := trimmed/total + 0.002*float64(k); l < loss-1e-12 {
			best, loss = s, l
		}
	}
	return best
}

// cutSorted cuts the samples from the longest down into batches of the most efficient
// size, sorts the batches by duration and makes a step of each full group.
func (p *Plan) cutSorted(o *order, seed, epoch uint64) ([]uint32, []Batch) {
	r := rand.New(rand.NewPCG(seed, mix(epoch, 0)))
	all := slots(p.Speeds)
	trim := slices.ContainsFunc(all, func(s slot) bool { return s.share < 1 })
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
		n := p.best[l]
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
	last := slices.Clone(cuts[whole:])
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
	// What is left, too little for a group, is one step dealt by speed.
	if rest > 0 {
		share := 0.0
		for _, s := range all {
			share += s.share
		}
		done, sum := 0, 0.0
		fits, kept := true, len(batches)
		for _, s := range all {
			sum += s.share
			next := int(math.Round(float64(rest) * sum / share))
			if next > done {
				longest := sort.SearchInts(o.start, next) - 1
				fits = fits && next-done <= p.cost.Cap(longest)
				batches = append(batches, Batch{uint32(done), uint32(next - done), uint32(s.rank)})
			}
			done = next
		}
		if !fits { // long samples among them: as they were cut
			batches = batches[:kept]
			for i, c := range last {
				batches = append(batches, Batch{c.start, c.count, uint32(all[i].rank)})
			}
		}
		ends = append(ends, uint32(len(batches)))
	}
	return shuffleSteps(r, ends, batches)
}

// shuffleSteps puts the steps in a random order.
func shuffleSteps(r *rand.Rand, ends []uint32, batches []Batch) ([]uint32, []Batch) {
	turn := r.Perm(len(ends) - 1)
	steps := make([]uint32, 1, len(ends))
	out := make([]Batch, 0, len(batches))
	for _, i := range turn {
		out = append(out, batches[ends[i]:ends[i+1]]...)
		steps = append(steps, uint32(len(out)))
	}
	return steps, out
}

// cutAnchor cuts buckets into batches that finish within the anchor duration on their
// rank. Same: all ranks of a step take one bucket; else each rank draws a bucket,
// weighted by the samples left in it. What is left of a bucket, too little for its step
// or batch, is dealt to all ranks (same) or joins steps of similar remainders (mixed).
func (p *Plan) cutAnchor(o *order, seed, epoch uint64, same bool) ([]uint32, []Batch) {
	r := rand.New(rand.NewPCG(seed, mix(epoch, 0)))
	ends, batches := []uint32{0}, []Batch{}
	left := make([]int, len(p.Buckets))
	total := 0
	for k := range left {
		left[k] = o.start[k+1] - o.start[k]
		total += left[k]
	}
	take := func(k, n, rank int) Batch {
		left[k] -= n
		total -= n
		return Batch{uint32(o.start[k] + left[k]), uint32(n), uint32(rank)}
	}
	if same {
		for k := range left {
			sizes, step := p.sizes[k], 0
			for _, n := range sizes {
				step += n
			}
			for left[k] > 0 {
				whole, sum, before := min(left[k], step), 0, 0
				for rank, n := range sizes {
					sum += n
					now := int(math.Round(float64(whole) * float64(sum) / float64(step)))
					if n := now - before; n > 0 {
						batches = append(batches, take(k, n, rank))
					}
					before = now
				}
				ends = append(ends, uint32(len(batches)))
			}
		}
		return shuffleSteps(r, ends, batches)
	}
	type rest struct {
		b       Batch
		bucket  int
		seconds float64
	}
	var rests []rest
	for total > 0 {
		var step []rest
		for rank := range p.Speeds {
			for total > 0 {
				pick, k := r.IntN(total), 0
				for pick >= left[k] {
					pick -= left[k]
					k++
				}
				if n := p.sizes[k][rank]; left[k] >= n {
					b := take(k, n, rank)
					step = append(step, rest{b, k, p.cost.Seconds(p.Buckets[k].Upper, n)})
					break
				}
				n := left[k]
				rests = append(rests, rest{take(k, n, 0), k, p.cost.Seconds(p.Buckets[k].Upper, n)})
			}
		}
		if len(step) < len(p.Speeds) {
			rests = append(rests, step...)
			continue
		}
		for _, b := range step {
			batches = append(batches, b.b)
		}
		ends = append(ends, uint32(len(batches)))
	}
	slices.SortFunc(rests, func(a, b rest) int {
		if a.seconds != b.seconds {
			if a.seconds > b.seconds {
				return -1
			}
			return 1
		}
		return int(a.b.Start) - int(b.b.Start)
	})
	ranks := make([]int, len(p.Speeds)) // the fastest takes the longest
	for i := range ranks {
		ranks[i] = i
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		if p.Speeds[a] > p.Speeds[b] {
			return -1
		}
		if p.Speeds[a] < p.Speeds[b] {
			return 1
		}
		return 0
	})
	for i, b := range rests {
		b.b.Rank = uint32(ranks[i%len(ranks)])
		batches = append(batches, b.b)
		if i%len(ranks) == len(ranks)-1 || i == len(rests)-1 {
			s := batches[ends[len(ends)-1]:]
			slices.SortFunc(s, func(a, b Batch) int { return int(a.Rank) - int(b.Rank) })
			ends = append(ends, uint32(len(batches)))
		}
	}
	return shuffleSteps(r, ends, batches)
}
