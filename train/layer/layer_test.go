package layer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func generator(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// newCall is a random call for a layer.
func newCall(l Layer, n int, rng *rand.Rand) *Call {
	in, out := l.Sizes()
	kept, scratch := l.Memory(n)
	w := &Call{N: n, X: normal(rng, n*in), Y: make([]float32, n*out), DX: normal(rng, n*in), DY: normal(rng, n*out),
		Kept: make([]float32, kept), Scratch: normal(rng, scratch)}
	for _, p := range l.Params() {
		w.W = append(w.W, normal(rng, p.Len()))
		w.DW = append(w.DW, normal(rng, p.Len())) // Backward sets, it does not add
	}
	return w
}

// Every gradient is the slope of the loss that is the sum of DY x Y.
func TestGradients(t *testing.T) {
	for _, l := range []Layer{
		Dense{1, 5, 3, 0}, Dense{4, 3, 7, 0}, ReLU{6}, GELU{6}, LayerNorm{3, 5}, Embedding{4, 6, 3}, Attention{5, 6, 2}, Attention{1, 4, 4},
		Convolution{5, 4, 2, 3, 3, 1}, Convolution{5, 4, 2, 3, 3, 2}, Convolution{2, 3, 1, 2, 5, 3},
	} {
		t.Run(fmt.Sprintf("%T%+v", l, l), func(t *testing.T) {
			rng := generator(7)
			w := newCall(l, 3, rng)
			var tokens bool
			switch e := l.(type) {
			case Embedding:
				tokens = true
				for i := range w.X {
					w.X[i] = float32(rng.IntN(e.Tokens))
				}
			case ReLU: // away from where there is no slope
				for i, x := range w.X {
					w.X[i] += float32(math.Copysign(0.1, float64(x)))
				}
			}
			loss := func() float64 {
				l.Forward(w)
				var sum float64
				for i, y := range w.Y {
					sum += float64(y) * float64(w.DY[i])
				}
				return sum
			}
			loss()
			l.Backward(w)
			check := func(what string, x, dx []float32) {
				for i, was := range x {
					const h = 1.0 / 64
					x[i] = was + h
					up := loss()
					x[i] = was - h
					slope := (up - loss()) / (2 * h)
					x[i] = was
					if math.Abs(slope-float64(dx[i])) > 4e-3*(1+math.Abs(slope)) {
						t.Fatalf("%s %d: gradient %v, slope %v", what, i, dx[i], slope)
					}
				}
			}
			for i, p := range l.Params() {
				check(p.Name, w.W[i], w.DW[i])
			}
			if !tokens {
				check("input", w.X, w.DX)
			}
		})
	}
}
