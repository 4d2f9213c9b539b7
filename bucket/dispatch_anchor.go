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
// weighted by the samples left in it. The remainder of a bucket, too small for a step or
// batch, is divided among all ranks (same) or joins steps of similar remainders (mixed).
func (p *Plan) cutAnchor(o *order, seed, epoch uint64, same bool) ([]uint32, []Batch) {
	r := rand.New(rand.NewPCG(seed, mix(epoch, 0)))
	c := &cutter{o: o, left: make([]int, len(p.Buckets)), ends: []uint32{0}, batches: []Batch{}}
	for k := range c.left {
		c.left[k] = o.start[k+1] - o.start[k]
		c.total += c.left[k]
	}
	if same {
		for k := range c.left {
			c.same(k, p.sizes[k])
		}
	} else {
		p.deal(c, p.mixed(c, r))
	}
	return shuffleSteps(r, c.ends, c.batches)
}

// cutter takes batches off the ends of buckets.
type cutter struct {
	o       *order
	left    []int // per bucket: samples not taken
	total   int   // of them
	ends    []uint32
	batches []Batch
}

func (c *cutter) take(k, n, rank int) Batch {
	c.left[k] -= n
	c.total -= n
	return Batch{uint32(c.o.start[k] + c.left[k]), uint32(n), uint32(rank)}
}

// end ends a step.
func (c *cutter) end() { c.ends = append(c.ends, uint32(len(c.batches))) }

// same cuts a bucket into steps of which every rank has its size; the last is shared in proportion.
func (c *cutter) same(k int, sizes []int) {
	step := 0
	for _, n := range sizes {
		step += n
	}
	for c.left[k] > 0 {
		whole, sum, before := min(c.left[k], step), 0, 0
		for rank, n := range sizes {
			sum += n
			now := int(math.Round(float64(whole) * float64(sum) / float64(step)))
			if n := now - before; n > 0 {
				c.batches = append(c.batches, c.take(k, n, rank))
			}
			before = now
		}
		c.end()
	}
}

// rest is a batch that fills no step: what was left of a bucket, or of the last step.
type rest struct {
	b       Batch
	bucket  int
	seconds float64
}

// mixed cuts steps in which each rank draws a bucket, weighted by the samples left in it, and returns what fills none.
func (p *Plan) mixed(c *cutter, r *rand.Rand) (rests []rest) {
	for c.total > 0 {
		var step []rest
		for rank := range p.Speeds {
			for c.total > 0 {
				pick, k := r.IntN(c.total), 0
				for pick >= c.left[k] {
					pick -= c.left[k]
					k++
				}
				n := p.sizes[k][rank]
				if c.left[k] >= n {
					step = append(step, rest{c.take(k, n, rank), k, p.cost.Seconds(p.Buckets[k].Upper, n)})
					break
				}
				n = c.left[k]
				rests = append(rests, rest{c.take(k, n, 0), k, p.cost.Seconds(p.Buckets[k].Upper, n)})
			}
		}
		if len(step) < len(p.Speeds) {
			rests = append(rests, step...)
			continue
		}
		for _, b := range step {
			c.batches = append(c.batches, b.b)
		}
		c.end()
	}
	return rests
}

// deal makes steps of rests of similar durations.
func (p *Plan) deal(c *cutter, rests []rest) {
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
		c.batches = append(c.batches, b.b)
		if i%len(ranks) == len(ranks)-1 || i == len(rests)-1 {
			s := c.batches[c.ends[len(c.ends)-1]:]
			slices.SortFunc(s, func(a, b Batch) int { return int(a.Rank) - int(b.Rank) })
			c.end()
		}
	}
}
