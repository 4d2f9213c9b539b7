package forward

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A sweep gives what the format's page says, entry by entry, on every path and however it is shared among processors.
func TestSweepsAreTheFormats(t *testing.T) {
	skipRaced(t)
	eachPath(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			key, tensor := rapid.Uint64().Draw(t, "key"), rapid.Uint32().Draw(t, "tensor")
			shift := uint(rapid.IntRange(0, 18).Draw(t, "shift"))
			n := rapid.OneOf(rapid.IntRange(1, 3000), rapid.IntRange(2*partLen, 2*partLen+3000)).Draw(t, "entries")
			one := term{step: rapid.Uint32().Draw(t, "step"), direction: rapid.Uint32().Draw(t, "direction"),
				plus: rapid.Int64Range(-1<<31, 1<<31).Draw(t, "plus"), minus: rapid.Int64Range(-1<<31, 1<<31).Draw(t, "minus")}
			start := make([]int32, n)
			rng := rand.New(rand.NewPCG(key, 1))
			for i := range start {
				start[i] = int32(rng.Uint32())
			}
			bits := func(i, each int) uint32 { // number i, so many bits long
				block := philox([4]uint32{uint32(i * each / 128), tensor, one.direction, one.step}, [2]uint32{uint32(key), uint32(key >> 32)})
				return block[i*each/32%4] >> (i * each % 32) & (1<<each - 1)
			}
			signs, uniform := slices.Clone(start), slices.Clone(start)
			addTerms(signs, key, tensor, shift, []term{one})
			addUniform(uniform, stream{keyOf(key), one.step, one.direction, tensor}, one.plus, shift)
			for i, x := range start {
				if want := x + int32(1-2*int64(bits(i, 1)))*int32(nearest(one.plus, shift)-nearest(one.minus, shift)); signs[i] != want {
					t.Fatalf("sign %d: %d, want %d", i, signs[i], want)
				}
				v := int64(bits(i, 16))
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
