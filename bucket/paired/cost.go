package paired

import (
	"evenkeel/bucket"
	"evenkeel/bucket/internal/partition"
)

// Cost predicts a step of one rank of speed 1 whose samples have two lengths.
type Cost interface {
	// Seconds of a batch of that many samples padded to these lengths; it rises with each of the three.
	Seconds(source, target, batch int) float64
	// Cap is the largest batch of these lengths that fits into memory; 0: none. It never rises with either length.
	Cap(source, target int) int
}

// cost is a bucket.Cost of batches whose sources and targets are padded separately. Its lengths are kinds (numbers of pairs of lengths)
// or, for batches of several kinds, the longest source and the longest target encoded as one number.
type cost struct {
	of     Cost
	shapes []shape
	limits partition.Limits
	none   []bool // by kind: whether it fits into no batch
}

const sideBits = 25 // of MaxLength; a kind's number has fewer

// sides are the lengths to which a batch is padded.
func (p *cost) sides(length int) (source, target int) {
	if length < 1<<sideBits {
		s := p.shapes[length]
		return s.Source, s.Target
	}
	return length >> sideBits, length & (1<<sideBits - 1)
}

// join is the length to which samples of two lengths are padded together.
func (p *cost) join(a, b int) int {
	if a == b {
		return a
	}
	s, t := p.sides(a)
	s2, t2 := p.sides(b)
	return max(s, s2)<<sideBits | max(t, t2)
}

func (p *cost) padded(length int) (source, target int) {
	s, t := p.sides(length)
	return partition.Up(s, p.limits.PadTo), partition.Up(t, p.limits.PadTo)
}

// Seconds of a batch of that many samples.
func (p *cost) Seconds(length, batch int) float64 {
	s, t := p.padded(length)
	return p.of.Seconds(s, t, partition.Up(batch, p.limits.Multiple))
}

// Cap is the largest batch within memory and the limits.
func (p *cost) Cap(length int) int { return p.most(length, 1) }

// most is that of a place with this share.
func (p *cost) most(length int, share float64) int {
	n, tokens := p.room(length)
	return p.limits.Of(n, tokens, share)
}

func (p *cost) room(length int) (batch, tokens int) {
	s, t := p.padded(length)
	return p.of.Cap(s, t), s + t
}

// Breaks are the smallest and the largest multiple of the batch size. Multiples between them take time linear in the batch.
func (p *cost) Breaks(length int) []int {
	m := p.limits.Multiple
	if m == 1 {
		return nil
	}
	n := p.Cap(length)
	return []int{m, max(m, n-n%m)}
}

// longest is the length of a batch of these kinds, and the sums of its sources and of its targets.
func (p *cost) longest(kinds []uint32) (length int, sources, targets float64) {
	length = int(kinds[0])
	for _, k := range kinds {
		s := p.shapes[k]
		sources, targets = sources+float64(s.Source), targets+float64(s.Target)
		length = p.join(length, int(k))
	}
	return length, sources, targets
}

var _ bucket.Measurer = (*cost)(nil)

// Measure is what a batch of samples of these kinds takes.
func (p *cost) Measure(kinds []uint32) bucket.Measured {
	length, sources, targets := p.longest(kinds)
	source, target := p.sides(length)
	n := len(kinds)
	return bucket.Measured{Seconds: p.Seconds(length, n), OutOfMemory: n > p.Cap(length), Tokens: [2]float64{sources, targets}, Cells: [2]float64{float64(source * n), float64(target * n)}}
}
