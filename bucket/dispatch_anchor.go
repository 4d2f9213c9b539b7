package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
)

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
