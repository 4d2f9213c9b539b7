package forward

import (
	"math"
	"runtime"
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
			mine := slices.DeleteFunc(slices.Clone(terms[i:]), func(other term) bool { return !same(other) })
			inParts(w, 8, func(part []int32, block int) { addGaussian(part, s, block, mine, shift) })
			continue
		}
		n := int64(0)
		for _, other := range terms[i:] {
			if same(other) {
				n += nearest(other.plus, shift) - nearest(other.minus, shift)
			}
		}
		if n != 0 {
			inParts(w, 128, func(part []int32, block int) { addSigns(part, s, block, int32(n)) })
		}
	}
}

// addSigns adds n or -n by random signs, the lowest bit of a block first; w begins at a block.
func addSigns(w []int32, s stream, block int, n int32) {
	var words [32]uint32
	for ; len(w) >= 1024; block += 8 {
		s.fill(&words, block, 8)
		addWords((*[1024]int32)(w), &words, n)
		w = w[1024:]
	}
	if len(w) > 0 {
		s.fill(&words, block, (len(w)+127)/128)
		addWordsGo(w, &words, n)
	}
}

// partLen is from how many entries on a sweep is shared among processors.
const partLen = 1 << 16

// inParts has do work on whole blocks of so many entries, on all of the machine's processors. Entries do not meet, so the
// result is the same however many there are.
func inParts(w []int32, entries int, do func(part []int32, block int)) {
	parts := min(runtime.GOMAXPROCS(0), len(w)/partLen)
	if parts < 2 {
		do(w, 0)
		return
	}
	each := (len(w)/parts + entries - 1) / entries
	var wg sync.WaitGroup
	for block := 0; block*entries < len(w); block += each {
		part := w[block*entries : min((block+each)*entries, len(w))]
		wg.Go(func() { do(part, block) })
	}
	wg.Wait()
}

// addGaussian adds amounts times normal numbers, two to a word; w begins at a block. Each side of each term is rounded
// by itself, as by nearest.
func addGaussian(w []int32, s stream, block int, terms []term, shift uint) {
	shift += quantileBits
	var words [32]uint32
	var z [64]int32
	for ; len(w) > 0; block += 8 {
		part := w[:min(64, len(w))]
		s.fill(&words, block, (len(part)+7)/8)
		normals(&z, &words)
		for _, t := range terms {
			if t.plus != 0 {
				addScaled(part, &z, t.plus, shift, 1)
			}
			if t.minus != 0 {
				addScaled(part, &z, t.minus, shift, -1)
			}
		}
		w = w[len(part):]
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

// quantiles are the normal quantiles at (i + 1/2) / 2^16, in units of 2^-12, and one entry more that no index reaches.
// None is so near to the middle between two units that a build's way of computing could show; a test has their hash.
var quantiles = sync.OnceValue(func() *[1<<16 + 1]int16 {
	var t [1<<16 + 1]int16
	for i := range t[:1<<15] {
		p := (float64(i) + 0.5) / (1 << 16)
		z := math.Sqrt2 * math.Erfinv(float64(2*p)-1)
		t[i] = int16(math.Round(z * (1 << quantileBits)))
		t[1<<16-1-i] = -t[i]
	}
	return &t
})
