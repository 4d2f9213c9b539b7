package packed

import (
	"evenkeel/bucket"
	"evenkeel/bucket/internal/partition"
)

// cost is the cost of a batch whose samples lie end to end: a fixed time, and for each sample a time and a part of the memory. They
// are chosen so that the most efficient batch of each single length has the cost of the given Cost, unless the fixed time alone is longer.
type cost struct {
	bucket.Cost         // of batches of one length
	fixed       float64 // seconds
	sample      []float64
	room        []float64 // of the memory, by length
	work        float64   // seconds of all samples, without fixed
	filled      float64   // how many times all samples fill the memory
}

func newCost(c bucket.Cost, hist []uint32) *cost {
	p := &cost{Cost: c, sample: make([]float64, len(hist)), room: make([]float64, len(hist))}
	weight := 0.0
	for l, n := range hist {
		if n == 0 {
			continue
		}
		if top := c.Cap(l); top > 1 {
			one := c.Seconds(l, 1)
			p.fixed += float64(n) * max(0, one-(c.Seconds(l, top)-one)/float64(top-1))
			weight += float64(n)
		}
	}
	if weight > 0 {
		p.fixed /= weight
	}
	best, rate := partition.Efficient(hist, c)
	for l, n := range hist {
		if n > 0 {
			p.sample[l] = max(0, rate[l]-p.fixed/float64(best[l]))
			p.room[l] = 1 / float64(c.Cap(l))
			p.work += float64(n) * p.sample[l]
			p.filled += float64(n) * p.room[l]
		}
	}
	return p
}

// Seconds of a batch of that many samples of a length.
func (p *cost) Seconds(length, batch int) float64 {
	return p.fixed + float64(batch)*p.sample[length]
}

// of is what a sample adds to a batch.
func (p *cost) of(length int) (seconds, room float64) {
	if length >= len(p.room) { // it fits nowhere
		return p.Cost.Seconds(length, 1), 2
	}
	return p.sample[length], p.room[length]
}

// Breaks is nil: time is linear in the batch.
func (*cost) Breaks(int) []int { return nil }

var _ bucket.Measurer = (*cost)(nil)

// Measure is what a batch takes.
func (p *cost) Measure(lengths []uint32) bucket.Measured {
	var seconds, room, tokens float64
	for _, n := range lengths {
		s, r := p.of(int(n))
		seconds, room, tokens = seconds+s, room+r, tokens+float64(n)
	}
	return bucket.Measured{Seconds: p.fixed + seconds, OutOfMemory: room > 1+1e-9, Tokens: [2]float64{tokens}, Cells: [2]float64{tokens}}
}
