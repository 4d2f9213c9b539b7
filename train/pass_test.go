package train

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"evenkeel/train/layer"

	"pgregory.net/rapid"
)

// Bits do not depend on the number of processors, nor on what a pass was used for before.
func TestSameBits(t *testing.T) {
	n, err := Transformer(TransformerConfig{Tokens: 20, Length: 70, Size: 72, Heads: 2, Blocks: 1}) // large enough for gonum to split
	if err != nil {
		t.Fatal(err)
	}
	rng := generator(1)
	w := values(t, n)
	n.Initialize(w, rng)
	b, other := batch(n, 2, rng), batch(n, 2, rng)
	p, err := n.NewPass(2, true)
	if err != nil {
		t.Fatal(err)
	}
	run := func(b Batch) *Values {
		g := values(t, n)
		if _, err := p.Forward(w, b, 1); err != nil {
			t.Fatal(err)
		}
		for l := n.Layers() - 1; l >= 0; l-- {
			p.Backward(l, w, g)
		}
		return g
	}
	want := run(b)
	run(other)
	for _, procs := range []int{1, 2, 4} {
		was := runtime.GOMAXPROCS(procs)
		got := run(b)
		runtime.GOMAXPROCS(was)
		for i, p := range n.Params() {
			if !slices.Equal(got.Params[i], want.Params[i]) {
				t.Errorf("GOMAXPROCS %d: other bits in %s", procs, p.Name)
			}
		}
	}
}

// A pass that only goes forward takes less memory than one that trains.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n, err := Transformer(TransformerConfig{Tokens: 5, Length: rapid.IntRange(1, 6).Draw(r, "length"), Size: 4, Heads: 2, Blocks: rapid.IntRange(1, 3).Draw(r, "blocks")})
		if err != nil {
			r.Fatal(err)
		}
		samples := rapid.IntRange(1, 4).Draw(r, "samples")
		forward, err := n.NewPass(samples, false)
		if err != nil {
			r.Fatal(err)
		}
		training, err := n.NewPass(samples, true)
		if err != nil {
			r.Fatal(err)
		}
		if memory(forward) >= memory(training) {
			r.Fatalf("forward %d floats, training %d", memory(forward), memory(training))
		}
	})
}

// memory is the floats that the passes hold, those that they share counted once.
func memory(passes ...*Pass) int {
	held := map[*float32]int{}
	for _, p := range passes {
		for _, f := range slices.Concat(p.acts, p.kept, p.grads, [][]float32{p.scratch, p.spare}) {
			if len(f) > 0 {
				held[&f[0]] = cap(f)
			}
		}
	}
	floats := 0
	for _, n := range held {
		floats += n
	}
	return floats
}

func TestWrongUse(t *testing.T) {
	n, err := Transformer(TransformerConfig{Tokens: 5, Length: 2, Size: 4, Heads: 2, Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := values(t, n)
	for name, b := range map[string]Batch{
		"nothing":       {},
		"inputs":        {Inputs: []float32{1}, Targets: []int32{1, 2}},
		"half a sample": {Inputs: []float32{1, 2, 3}, Targets: []int32{1, 2, 3}},
		"class":         {Inputs: []float32{1, 2}, Targets: []int32{1, 5}},
		"negative":      {Inputs: []float32{1, 2}, Targets: []int32{1, -1}},
		"token":         {Inputs: []float32{1, 5}, Targets: []int32{1, 1}},
		"fraction":      {Inputs: []float32{1, 0.5}, Targets: []int32{1, 1}},
	} {
		if _, err := lossOf(n, w, b); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, build := range map[string]func() (*Network, error){
		"mlp of one":  func() (*Network, error) { return MLP(3) },
		"mlp of none": func() (*Network, error) { return MLP(3, 0, 2) },
		"heads":       func() (*Network, error) { return Transformer(TransformerConfig{5, 5, 5, 2, 1}) },
		"no channels": func() (*Network, error) { return Convnet(3, 3, 1, 2) },
		"sizes differ": func() (*Network, error) {
			return NewNetwork(1, 2, Named{Name: "a", Layer: layer.Dense{Positions: 1, In: 2, Out: 3}}, Named{Name: "b", Layer: layer.Dense{Positions: 1, In: 2, Out: 2}})
		},
		"same name": func() (*Network, error) {
			return NewNetwork(1, 2, Named{Name: "a", Layer: layer.ReLU{Size: 2}}, Named{Name: "a", Layer: layer.ReLU{Size: 2}})
		},
		"add ahead": func() (*Network, error) {
			return NewNetwork(1, 2, Named{Name: "a", Layer: layer.ReLU{Size: 2}}, Named{Name: "b", Add: "c"})
		},
		"classes": func() (*Network, error) { return NewNetwork(1, 3, Named{Name: "a", Layer: layer.ReLU{Size: 2}}) },
	} {
		if _, err := build(); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := n.NewPass(1, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Forward(w, batch(n, 1, generator(1)), 1); !errors.Is(err, ErrUsage) {
		t.Errorf("training with a forward pass: %v", err)
	}
	if _, err := n.NewPass(1<<40, true); !errors.Is(err, ErrUsage) {
		t.Errorf("a pass of more floats than there are: %v", err)
	}
	if _, err := p.Loss(w, batch(n, 2, generator(1))); !errors.Is(err, ErrUsage) {
		t.Errorf("two samples in a pass for one: %v", err)
	}
}
