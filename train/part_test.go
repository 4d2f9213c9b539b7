package train

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Parts of a network, with two batches on their way at a time, compute the bits of the whole: loss, gradients and
// weights to start from.
func TestParts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var n *Network
		var err error
		switch rapid.IntRange(0, 2).Draw(r, "network") {
		case 0:
			n, err = MLP(6, 5, 7, 4, 3)
		case 1:
			n, err = Convnet(5, 5, 1, 3, 2, 3)
		default:
			n, err = Transformer(TransformerConfig{Tokens: 5, Length: 4, Size: 6, Heads: 2, Blocks: 3})
		}
		if err != nil {
			r.Fatal(err)
		}
		seed := rapid.Uint64().Draw(r, "seed")
		rng := generator(seed)
		samples := rapid.IntRange(1, 3).Draw(r, "samples")
		batches := [2]Batch{batch(n, samples, rng), batch(n, samples, rng)}

		whole, err := n.NewPass(samples, true)
		if err != nil {
			r.Fatal(err)
		}
		w := values(t, n)
		n.Initialize(w, rand.New(rand.NewPCG(seed, 0)))
		var losses [2]float64
		want := [2]*Values{values(t, n), values(t, n)}
		for i, b := range batches {
			if losses[i], err = whole.Forward(w, b, 0.25); err != nil {
				r.Fatal(err)
			}
			for l := n.Layers() - 1; l >= 0; l-- {
				whole.Backward(l, w, want[i])
			}
		}

		var passes [][2]*PartPass
		var weights []*Values
		first := []int{}
		for from := 0; from < n.Layers(); {
			ends := []int{}
			for to := from + 1; to <= n.Layers(); to++ {
				if !n.Crossed(to) {
					ends = append(ends, to)
				}
			}
			to := rapid.SampledFrom(ends).Draw(r, "end")
			p, err := n.Part(from, to)
			if err != nil {
				r.Fatal(err)
			}
			v := p.NewValues()
			p.Initialize(v, rand.New(rand.NewPCG(seed, 0)))
			a, err := p.NewPass(samples)
			if err != nil {
				r.Fatal(err)
			}
			b, err := a.Beside()
			if err != nil {
				r.Fatal(err)
			}
			passes, weights, first = append(passes, [2]*PartPass{a, b}), append(weights, v), append(first, p.first)
			from = to
		}
		for i, b := range batches {
			x := b.Inputs
			for k := range passes {
				if x, err = passes[k][i].Forward(weights[k], x); err != nil {
					r.Fatal(err)
				}
			}
		}
		for i, b := range batches {
			last := len(passes) - 1
			if loss, err := passes[last][i].Loss(b.Targets, 0.25); err != nil || loss != losses[i] {
				r.Fatalf("loss %v, %v; want %v", loss, err, losses[i])
			}
			for k := last; k >= 0; k-- {
				g := passes[k][i].part.NewValues()
				dx := passes[k][i].Backward(weights[k], g)
				for j, d := range g.Params {
					if !slices.Equal(d, want[i].Params[first[k]+j]) || !slices.Equal(weights[k].Params[j], w.Params[first[k]+j]) {
						r.Fatalf("other bits in %s", n.params[first[k]+j].Name)
					}
				}
				if k > 0 {
					copy(passes[k-1][i].OutputGradient(), dx)
				} else if dx != nil {
					r.Fatal("a gradient at the inputs")
				}
			}
		}
	})
}

func TestPartWrongUse(t *testing.T) {
	n, err := Transformer(TransformerConfig{Tokens: 5, Length: 2, Size: 4, Heads: 2, Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, ends := range [][2]int{{0, 0}, {-1, 2}, {0, 99}, {0, 3}, {3, 6}, {6, 8}} {
		if _, err := n.Part(ends[0], ends[1]); !errors.Is(err, ErrUsage) {
			t.Errorf("layers %v: %v", ends, err)
		}
	}
	p, err := n.Part(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.NewPass(0); !errors.Is(err, ErrUsage) {
		t.Error(err)
	}
	pass, err := p.NewPass(1)
	if err != nil {
		t.Fatal(err)
	}
	w := p.NewValues()
	if _, err := pass.Forward(w, make([]float32, 3)); !errors.Is(err, ErrUsage) {
		t.Error(err)
	}
	if _, err := pass.Loss([]int32{1, 2}, 1); !errors.Is(err, ErrUsage) {
		t.Error("a loss in the middle:", err)
	}
	last, err := n.Part(1, n.Layers())
	if err != nil {
		t.Fatal(err)
	}
	if pass, err = last.NewPass(1); err != nil {
		t.Fatal(err)
	}
	if _, err := pass.Loss([]int32{1, 9}, 1); !errors.Is(err, ErrUsage) {
		t.Error("a class that is none:", err)
	}
}

func TestOrderWrongUse(t *testing.T) {
	if _, err := NewOrder(0, 1); !errors.Is(err, ErrUsage) {
		t.Error(err)
	}
}

// Parts that share memory need no more than the largest alone, and compute the same, one after the other.
func TestOnePassEach(t *testing.T) {
	n, err := MLP(4, 50, 60, 3)
	if err != nil {
		t.Fatal(err)
	}
	var parts []*Part
	var largest, sum int
	for _, ends := range [][2]int{{0, 2}, {2, 4}, {4, 5}} {
		p, err := n.Part(ends[0], ends[1])
		if err != nil {
			t.Fatal(err)
		}
		alone, err := p.NewPass(2)
		if err != nil {
			t.Fatal(err)
		}
		floats := memory(alone.pass)
		parts, largest, sum = append(parts, p), max(largest, floats), sum+floats
	}
	shared, err := OnePassEach(parts, 2)
	if err != nil {
		t.Fatal(err)
	}
	if all := memory(shared[0].pass, shared[1].pass, shared[2].pass); all >= sum || all < largest {
		t.Errorf("%d floats; %d for the largest alone, %d for each its own", all, largest, sum)
	}
	rng := generator(1)
	x := normal(rng, 8)
	for k, p := range parts {
		w := p.NewValues()
		p.Initialize(w, generator(2))
		alone, err := p.NewPass(2)
		if err != nil {
			t.Fatal(err)
		}
		want, err := alone.Forward(w, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := shared[k].Forward(w, x)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("part %d: %v, %v; want %v", k, got, err, want)
		}
		x = want
	}
	if _, err := OnePassEach(parts, 0); !errors.Is(err, ErrUsage) {
		t.Error(err)
	}
}

// The hash tells networks apart that have the same parameters.
func TestHash(t *testing.T) {
	hash := func(heads int) string {
		n, err := Transformer(TransformerConfig{Tokens: 5, Length: 2, Size: 4, Heads: heads, Blocks: 1})
		if err != nil {
			t.Fatal(err)
		}
		return n.Hash()
	}
	if one, two, again := hash(1), hash(2), hash(2); one == two || two != again {
		t.Error(one, two, again)
	}
}
