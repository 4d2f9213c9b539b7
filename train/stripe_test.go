package train_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/checkpoint"
	"github.com/evenkeel/evenkeel/internal/race"
	"github.com/evenkeel/evenkeel/train"
)

// Nodes that each save their share go on to the same bits.
func TestStripedResume(t *testing.T) {
	training, _ := digits(t)
	net := must(train.Convnet(8, 8, 1, 10, 3, 4))
	c := train.Config{MicroBatches: []int{15, 25, 3}, Seed: 8}
	want := run(t, trainer(t, net, training, c), 9)
	var paths []string
	for i := range 3 {
		paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprint(i)))
	}
	for _, mode := range []checkpoint.Mode{checkpoint.ZeroCopy, checkpoint.Staged} {
		var got []float64
		for _, steps := range []int{4, 0, 5} {
			tr := trainer(t, net, training, c)
			s, err := checkpoint.OpenOrCreateSet(paths, tr.Arrays(), checkpoint.Options{Mode: mode, WhenFull: checkpoint.Block})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tr.RestoreSet(s); err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
				t.Fatal(err)
			}
			if int(tr.Steps()) != len(got) {
				t.Fatalf("%d steps restored, want %d", tr.Steps(), len(got))
			}
			if err := tr.SaveToSet(s, train.SaveConfig{Every: 1}); err != nil {
				t.Fatal(err)
			}
			got = append(got, run(t, tr, steps)...)
			if err := errors.Join(tr.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("mode %v: losses %v, want %v", mode, got, want)
		}
		for i := range paths {
			paths[i] += ".staged"
		}
	}
}

// Clipping by the norm of all gradients: the schedules agree to the bit, it does something, and a norm that no
// gradient reaches does nothing.
func TestClip(t *testing.T) {
	training, _ := digits(t)
	net := must(train.MLP(64, 10, 12))
	losses := map[string][]float64{}
	for name, c := range map[string]train.Config{
		"overlapped": {ClipNorm: 0.1}, "sequential": {ClipNorm: 0.1, Sequential: true}, "none": {}, "far": {ClipNorm: 1e9},
	} {
		c.MicroBatches, c.Seed = []int{5, 9}, 3
		c.Optimizer = train.Optimizer{Method: train.SGD, Rate: 1}
		tr := trainer(t, net, training, c)
		before := slices.Clone(tr.Weights().Layers[0])
		losses[name] = run(t, tr, 6)
		if name == "overlapped" {
			moved := 0.0
			for i, w := range tr.Weights().Layers[0] {
				moved += float64(w-before[i]) * float64(w-before[i])
			}
			if moved > 6*6*0.1*0.1*1.001 {
				t.Errorf("six steps of at most 0.1 moved the weights by the root of %v", moved)
			}
		}
	}
	if !slices.Equal(losses["overlapped"], losses["sequential"]) || !slices.Equal(losses["none"], losses["far"]) || slices.Equal(losses["none"], losses["overlapped"]) {
		t.Errorf("losses %v", losses)
	}
}

// A pass allocates nothing.
func TestLossAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the pool of train/layer allocates under the race detector")
	}
	net := must(train.Transformer(train.TransformerConfig{Tokens: 20, Length: 8, Size: 8, Heads: 2, Blocks: 2}))
	p, err := net.NewPass(2, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := net.NewValues(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := train.Batch{Inputs: make([]float32, 16), Targets: make([]int32, 16)}
	if n := testing.AllocsPerRun(10, func() {
		if _, err := p.Loss(w, b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
