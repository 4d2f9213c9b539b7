package forward

import (
	"math"
	"slices"
	"sync"
)

// Kind is the distribution of a direction's entries.
type Kind string

// Kinds.
const (
	// Rademacher entries are +1 and -1: the lowest variance, and the fastest.
	Rademacher Kind = "rademacher"
	// Gaussian entries are normal, as MeZO's (Malladi et al., NeurIPS 2023), in steps of 1/4096.
	Gaussian Kind = "gaussian"
)

// term is one direction times an amount, to be added to weights. Amounts are integers in units of 2^-24.
type term struct {
	step      uint32
	direction uint32
	plus      int64 // added as +f(plus, z)
	minus     int64 // added as -f(minus, z): undoes exactly what plus did
}

// add adds terms to w, a tensor; shift is by how much its unit is coarser than 2^-24. Each side of each term is rounded
// by itself. Terms of one direction are added in one sweep.
func (k Kind) add(w []int32, key uint64, tensor uint32, shift uint, terms []term) {
	for i, t := range terms {
		same := func(other term) bool { return other.step == t.step && other.direction == t.direction }
		if slices.ContainsFunc(terms[:i], same) {
			continue // went with the first
		}
		s := stream{keyOf(key), t.step, t.direction, tensor}
		if k == Gaussian {
			addGaussian(w, s, slices.DeleteFunc(slices.Clone(terms[i:]), func(other term) bool { return !same(other) }), shift)
			continue
		}
		n := int64(0)
		for _, other := range terms[i:] {
			if same(other) {
				n += nearest(other.plus, shift) - nearest(other.minus, shift)
			}
		}
		if n != 0 {
			addSigns(w, s, int32(n))
		}
	}
}

// addSigns adds n or -n by random signs, the lowest bit of a block first.
func addSigns(w []int32, s stream, n int32) {
	for b := 0; len(w) > 0; b++ {
		r := s.block(b)
		for _, word := range r {
			m := min(32, len(w))
			part := w[:m]
			for i := range part {
				sign := -int32(word & 1) // 0 or all ones: (n ^ -1) + 1 is -n
				part[i] += (n ^ sign) - sign
				word >>= 1
			}
			if w = w[m:]; len(w) == 0 {
				return
			}
		}
	}
}

// addGaussian adds amounts times normal numbers, two to a word.
func addGaussian(w []int32, s stream, terms []term, shift uint) {
	table := quantiles()
	product := func(amount, z int64) int64 { return nearest(amount*z, shift+quantileBits) }
	for b := 0; len(w) > 0; b++ {
		r := s.block(b)
		for i := range min(8, len(w)) {
			z := int64(table[r[i/2]>>(16*(i%2))&0xFFFF])
			for _, t := range terms {
				w[i] += int32(product(t.plus, z) - product(t.minus, z))
			}
		}
		w = w[min(8, len(w)):]
	}
}

// nearest is x / 2^shift to the nearest whole number, halves up.
func nearest(x int64, shift uint) int64 {
	if shift == 0 {
		return x
	}
	return (x + 1<<(shift-1)) >> shift
}

const quantileBits = 12

// quantiles are the normal quantiles at (i + 1/2) / 2^16, in units of 2^-12.
var quantiles = sync.OnceValue(func() *[1 << 16]int32 {
	var t [1 << 16]int32
	for i := range t[:1<<15] {
		p := (float64(i) + 0.5) / (1 << 16)
		z := math.Sqrt2 * math.Erfinv(2*p-1)
		t[i] = int32(math.Round(z * (1 << quantileBits)))
		t[1<<16-1-i] = -t[i]
	}
	return &t
})
