package train

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Weights are those of node 0.
func (t *Trainer) Weights() *Values { return t.nodes[0].weights }

func pcg(seed uint64) *rand.PCG { return rand.NewPCG(seed, 1) }

func generator(seed uint64) *rand.Rand { return rand.New(pcg(seed)) }

func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
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
			p, err := n.NewPass(3, true)
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
			if again, err := lossOf(n, w, b); err != nil || again != loss {
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
					loss, err := lossOf(n, w, b)
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
	v := n.NewValues()
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

// lossOf is the mean cross-entropy of a batch, by a pass that only goes forward.
func lossOf(n *Network, w *Values, b Batch) (float64, error) {
	samples, err := n.check(b)
	if err != nil {
		return 0, err
	}
	p, err := n.NewPass(samples, false)
	if err != nil {
		return 0, err
	}
	return p.Loss(w, b)
}
