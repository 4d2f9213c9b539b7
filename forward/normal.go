package forward

import (
	"math"
	"sync"
)

// addNormals draws first weights: it adds normal numbers times an amount, in units of 2^-24, to w, the entries of a tensor.
// A random word gives two numbers.
func addNormals(w []int32, s stream, amount int64, shift uint) {
	table := quantiles()
	var words [32]uint32
	for block := 0; len(w) > 0; block += 8 {
		part := w[:min(64, len(w))]
		s.fill(&words, block, (len(part)+7)/8)
		for i := range part {
			z := table[words[i/2]>>(i%2*16)&0xFFFF]
			part[i] += int32(nearest(amount*int64(z), shift+quantileBits))
		}
		w = w[len(part):]
	}
}

const quantileBits = 12

// quantiles returns the normal quantiles at (i + 1/2) / 2^16, in units of 2^-12. None is so near the middle between two
// units that two builds could round it differently; a test checks their hash.
var quantiles = sync.OnceValue(func() *[1 << 16]int16 {
	var t [1 << 16]int16
	for i := range t[:1<<15] {
		p := (float64(i) + 0.5) / (1 << 16)
		z := math.Sqrt2 * math.Erfinv(float64(2*p)-1)
		t[i] = int16(math.Round(z * (1 << quantileBits)))
		t[1<<16-1-i] = -t[i]
	}
	return &t
})
