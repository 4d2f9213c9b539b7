package forward

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// addTerms adds terms to the entries of a tensor.
func addTerms(w []int32, key uint64, tensor uint32, shift uint, terms []term) {
	for _, r := range newRings(key, shift, ringEntries(len(w)), terms) {
		r.add(w, tensor)
	}
}

// A sweep gives what the format's page says, entry by entry, on every path and however it is shared among processors.
func TestSweepsAreTheFormats(t *testing.T) {
	skipRaced(t)
	eachPath(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			key, tensor := rapid.Uint64().Draw(t, "key"), rapid.Uint32().Draw(t, "tensor")
			shift := uint(rapid.IntRange(0, 18).Draw(t, "shift"))
			n := rapid.OneOf(rapid.IntRange(1, 5000), rapid.IntRange(2*partLen, 2*partLen+3000)).Draw(t, "entries")
			one := term{step: rapid.Uint32().Draw(t, "step"), direction: rapid.Uint32().Draw(t, "direction"),
				plus: rapid.Int64Range(-1<<31, 1<<31).Draw(t, "plus"), minus: rapid.Int64Range(-1<<31, 1<<31).Draw(t, "minus")}
			start := make([]int32, n)
			rng := rand.New(rand.NewPCG(key, 1))
			for i := range start {
				start[i] = int32(rng.Uint32())
			}
			signs, uniform := slices.Clone(start), slices.Clone(start)
			addTerms(signs, key, tensor, shift, []term{one})
			word := func(number, tensor, direction uint32) uint32 { // a random one, number 0 first
				return philox([4]uint32{number / 4, tensor, direction, one.step}, [2]uint32{uint32(key), uint32(key >> 32)})[number%4]
			}
			sign := func(i, tensor, direction uint32) int32 { return 1 - 2*int32(word(i/32, tensor, direction)>>(i%32)&1) }
			ring := uint32(128)
			for ring < 4096 && int(ring) < n {
				ring += ring
			}
			z := func(i uint32) int32 { // of the direction at an entry
				begin := word(i/128/2, tensor, 1) >> (i / 128 % 2 * 16)
				return sign(i, tensor, 0) * sign((begin+i%128)%ring, math.MaxUint32, one.direction)
			}
			addUniform(uniform, stream{keyOf(key), one.step, one.direction, tensor}, one.plus, shift)
			for i, x := range start {
				if want := x + z(uint32(i))*int32(nearest(one.plus, shift)-nearest(one.minus, shift)); signs[i] != want {
					t.Fatalf("sign %d: %d, want %d", i, signs[i], want)
				}
				v := int64(word(uint32(i/2), tensor, one.direction) >> (i % 2 * 16) & 0xFFFF)
				if want := x + int32(nearest(one.plus*(v-0x8000)+one.plus*(v-0x7FFF), shift+16)); uniform[i] != want {
					t.Fatalf("number %d: %d, want %d", i, uniform[i], want)
				}
			}
		})
	})
}

// Weights are read as floats with the same bits on every path.
func TestRead(t *testing.T) {
	w := &Weights{tensors: []Tensor{{Name: "w", Shape: []int{100}, Shift: 3}}, data: [][]int32{make([]int32, 100)}}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range w.data[0] {
		w.data[0][i] = int32(rng.Uint32())
	}
	eachPath(t, func(t *testing.T) {
		for from := range 100 {
			for n := range 101 - from {
				got := make([]float32, n)
				w.Read(0, from, got)
				for i, x := range got {
					if want := float32(w.data[0][from+i]) / (1 << 21); x != want {
						t.Fatalf("entry %d: %v, want %v", from+i, x, want)
					}
				}
			}
		}
	})
}

func TestCosine(t *testing.T) {
	for x := 0.0; x <= 1; x += 1.0 / 1024 {
		if got, want := cosine(x), math.Cos(math.Pi*x); math.Abs(got-want) > 1e-15 {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}
