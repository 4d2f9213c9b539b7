package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func pcg(seed uint64) *rand.PCG { return rand.NewPCG(seed, 1) }

func generator(seed uint64) *rand.Rand { return rand.New(pcg(seed)) }

func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// newWork is random work for a layer.
func newWork(l Layer, n int, rng *rand.Rand) *Work {
	in, out := l.Sizes()
	kept, scratch := l.Memory(n)
	w := &Work{N: n, X: normal(rng, n*in), Y: make([]float32, n*out), DX: normal(rng, n*in), DY: normal(rng, n*out),
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
			w := newWork(l, 3, rng)
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

// The layers of a network, and its loss, have the gradients that differences of the loss show.
func TestNetworkGradients(t *testing.T) {
	for name, n := range networks(t) {
		t.Run(name, func(t *testing.T) {
			rng := generator(3)
			w, g := values(t, n), values(t, n)
			n.Initialize(w, rng)
			for _, p := range w.Params { // larger, so that differences are not lost in rounding
				for i := range p {
					p[i] += float32(0.3 * rng.NormFloat64())
				}
			}
			b := batch(n, 3, rng)
			p, err := n.NewPass(3, true, nil)
			if err != nil {
				t.Fatal(err)
			}
			loss, err := p.Forward(w, b, 1/float64(len(b.Targets)))
			if err != nil {
				t.Fatal(err)
			}
			for l := n.Layers() - 1; l >= 0; l-- {
				p.Backward(l, w, g)
			}
			if again, err := n.Loss(w, b); err != nil || again != loss {
				t.Fatalf("loss %v forward only, %v in training, %v", again, loss, err)
			}
			for i, q := range n.Params() {
				// Along a random direction: every element counts, and the rounding of one does not.
				var slope float64
				direction := normal(rng, q.Len())
				var norm float64
				for j, d := range direction {
					slope += float64(d) * float64(g.Params[i][j])
					norm += float64(d * d)
				}
				const h = 1.0 / 1024
				at := func(h float64) float64 {
					for j, d := range direction {
						w.Params[i][j] += float32(h * float64(d))
					}
					loss, err := n.Loss(w, b)
					if err != nil {
						t.Fatal(err)
					}
					for j, d := range direction {
						w.Params[i][j] -= float32(h * float64(d))
					}
					return loss
				}
				k := h / math.Sqrt(norm) * 2
				if got := (at(k) - at(-k)) / (2 * k); math.Abs(got-slope) > 0.02*(math.Abs(slope)+0.02) {
					t.Errorf("%s: gradient gives slope %v, differences %v", q.Name, slope, got)
				}
			}
		})
	}
}

func networks(t *testing.T) map[string]*Network {
	t.Helper()
	all := map[string]*Network{}
	add := func(name string, n *Network, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = n
	}
	n, err := MLP(6, 8, 5, 3)
	add("mlp", n, err)
	n, err = Convnet(6, 5, 2, 3, 4, 5)
	add("convnet", n, err)
	n, err = Transformer(TransformerConfig{Tokens: 7, Length: 5, Size: 8, Heads: 2, Blocks: 2})
	add("transformer", n, err)
	return all
}

func values(t *testing.T, n *Network) *Values {
	t.Helper()
	v, err := n.NewValues(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func batch(n *Network, samples int, rng *rand.Rand) Batch {
	b := Batch{Inputs: normal(rng, samples*n.InputSize())}
	if n.tokens > 0 {
		for i := range b.Inputs {
			b.Inputs[i] = float32(rng.IntN(n.tokens))
		}
	}
	for range samples * n.Positions() {
		b.Targets = append(b.Targets, int32(rng.IntN(n.Classes())))
	}
	return b
}
