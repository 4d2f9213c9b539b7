package train

import (
	"math/rand/v2"
	"testing"
)

// valuesSource reads weights that are floats.
type valuesSource struct{ *Values }

func (s valuesSource) Read(param, from int, dst []float32) { copy(dst, s.Params[param][from:]) }

// By tiles of any length, on any number of processors, losses have the bits of weights held as a whole.
func TestStreamIsForward(t *testing.T) {
	for _, sizes := range [][]int{{5, 7, 3}, {40, 193, 500, 4}, {64, 600, 10}} {
		net, err := MLP(sizes...)
		if err != nil {
			t.Fatal(err)
		}
		values := net.NewValues()
		rng := rand.New(rand.NewPCG(1, 2))
		net.Initialize(values, rng)
		for _, samples := range []int{2, 70} {
			b := Batch{Inputs: make([]float32, samples*sizes[0]), Targets: make([]int32, samples)}
			for i := range b.Inputs {
				b.Inputs[i] = float32(rng.NormFloat64())
			}
			pass, err := net.NewPass(samples, false)
			if err != nil {
				t.Fatal(err)
			}
			want, err := pass.Loss(values, b)
			if err != nil {
				t.Fatal(err)
			}
			for _, tile := range []int{net.TileSize(), net.TileSize() + 1, 1 << 14} {
				var got [1]float64
				if err := pass.StreamLosses(valuesSource{values}, make([]float32, tile), b, got[:]); err != nil {
					t.Fatal(err)
				}
				if got[0] != want {
					t.Errorf("%v, %d samples, a tile of %d: %v, want %v", sizes, samples, tile, got[0], want)
				}
			}
		}
	}
}
