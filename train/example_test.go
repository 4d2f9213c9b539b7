package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"evenkeel/checkpoint"
	"evenkeel/train"
	"evenkeel/train/data"
	"evenkeel/train/layer"
)

// Two nodes, the first of which takes three times as many samples, train on images of digits.
func Example() {
	net, err := train.MLP(64, 32, 10)
	if err != nil {
		panic(err)
	}
	digits, err := data.Digits()
	if err != nil {
		panic(err)
	}
	training, held := data.Split(digits, 5)
	t, err := train.New(net, training, train.Config{
		MicroBatches: []int{24, 8},
		Optimizer:    train.Optimizer{Method: train.AdamW, Rate: 0.003},
	})
	if err != nil {
		panic(err)
	}
	for t.Steps() < 300 {
		if _, err := t.Step(context.Background()); err != nil {
			panic(err)
		}
	}
	right, _, err := t.Evaluate(held)
	if err != nil {
		panic(err)
	}
	fmt.Println(t.Samples(), "samples seen; more than 90% of held-out digits right:", float64(right) > 0.9*float64(held.Len()))
	// Output: 9600 samples seen; more than 90% of held-out digits right: true
}

// A run that is saved as it goes, and another that goes on where it ended.
func Example_checkpoint() {
	folder, err := os.MkdirTemp("", "train-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path, ctx := filepath.Join(folder, "run.ckpt"), context.Background()
	numbers, err := data.NewSynthetic(1000, 16, 4, 1)
	if err != nil {
		panic(err)
	}
	start := func() *train.Trainer {
		net, err := train.MLP(16, 8, 4)
		if err != nil {
			panic(err)
		}
		t, err := train.New(net, numbers, train.Config{MicroBatches: []int{16}, Optimizer: train.Optimizer{Method: train.SGD, Rate: 0.1}})
		if err != nil {
			panic(err)
		}
		return t
	}
	run := func(t *train.Trainer, f *checkpoint.File, until uint64) {
		err := t.SaveTo(f, train.SaveConfig{Every: 5})
		for err == nil && t.Steps() < until {
			_, err = t.Step(ctx)
		}
		if err := errors.Join(err, t.Save(ctx), t.Close(), f.Close()); err != nil {
			panic(err)
		}
	}
	first := start()
	f, err := checkpoint.Create(path, first.Arrays(), checkpoint.Options{})
	if err != nil {
		panic(err)
	}
	run(first, f, 10)

	second := start()
	if f, err = checkpoint.Open(path, second.Arrays(), checkpoint.Options{}); err != nil {
		panic(err)
	}
	if _, err := second.Restore(f); err != nil {
		panic(err)
	}
	fmt.Println("goes on after step", second.Steps())
	run(second, f, 20)
	// Output: goes on after step 10
}

// A network of layers of one's own choice, here with a residual connection.
func ExampleNewNetwork() {
	net, err := train.NewNetwork(1, 10,
		train.Named{Name: "in", Layer: layer.Dense{Positions: 1, In: 64, Out: 32}},
		train.Named{Name: "relu", Layer: layer.ReLU{Size: 32}},
		train.Named{Name: "hidden", Layer: layer.Dense{Positions: 1, In: 32, Out: 32}},
		train.Named{Name: "add", Add: "relu"},
		train.Named{Name: "out", Layer: layer.Dense{Positions: 1, In: 32, Out: 10}},
	)
	if err != nil {
		panic(err)
	}
	for _, p := range net.Params() {
		fmt.Println(p.Name, p.Shape)
	}
	// Output:
	// in.weight [64 32]
	// in.bias [32]
	// hidden.weight [32 32]
	// hidden.bias [32]
	// out.weight [32 10]
	// out.bias [10]
}
