package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"evenkeel/forward"
	"evenkeel/internal/stats"
	"evenkeel/train"
)

// long compares a long run with default settings with back-propagation.
func (w *world) long() error {
	var accuracies []float64
	var losses []float64 // of the first seed's steps
	for seed := range 5 {
		all, err := w.train(config(8, 8, w.steps, uint64(seed+1)), 8, func(p *forward.Processor) {
			if p.Rank == 0 && seed == 0 {
				p.OnStep = func(_ int, c forward.Commit) error { losses = append(losses, c.Loss); return nil }
			}
		})
		if err != nil {
			return err
		}
		a, _, err := forward.Evaluate(w.net, all[0].Weights, w.held)
		if err != nil {
			return err
		}
		accuracies = append(accuracies, a)
	}
	e := stats.Bootstrap([][]float64{accuracies})
	fmt.Printf("| method | steps | forward passes of 64 examples | training loss, last 100 steps, first seed | test accuracy |\n|---|---|---|---|---|\n| forward-only, 8 processors | %d | %d | %.3f | %.3f (%.3f to %.3f), 5 seeds |\n",
		w.steps, 8*w.steps, last(losses), e.Mean, e.Low, e.High)
	const steps = 1000
	var best *learned
	bestRate := float32(0)
	for _, rate := range []float32{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2} {
		l, err := w.backPropagation(steps, perPass, rate)
		if err != nil {
			return err
		}
		if best == nil || last(l.losses) < last(best.losses) {
			best, bestRate = l, rate
		}
	}
	fmt.Printf("| back-propagation, SGD, rate %g | %d | %d (a step counts as 3) | %.3f | %.3f, one seed |\n", bestRate, steps, 3*steps, last(best.losses), best.accuracy)
	return nil
}

// last returns the mean loss of the last hundred steps, infinity if the run diverged.
func last(losses []float64) float64 {
	sum, tail := 0.0, losses[max(0, len(losses)-100):]
	for _, x := range tail {
		sum += x / float64(len(tail))
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return sum
}

// learned is the result of a baseline: the loss of each step, and the accuracy on held-out data.
type learned struct {
	losses   []float64
	accuracy float64
}

// batch draws examples with replacement.
func (w *world) batch(rng *rand.Rand, n int) train.Batch {
	inputs, targets, _, _ := w.training.Shape()
	b := train.Batch{Inputs: make([]float32, n*inputs), Targets: make([]int32, n*targets)}
	for i := range n {
		w.training.Sample(rng.IntN(w.training.Len()), b.Inputs[i*inputs:][:inputs], b.Targets[i*targets:][:targets])
	}
	return b
}

// right returns the accuracy of weights on held-out data.
func (w *world) right(values *train.Values) (float64, error) {
	right, _, err := w.net.Evaluate(values, w.held)
	return float64(right) / float64(w.held.Len()), err
}

// backPropagation is plain SGD.
func (w *world) backPropagation(steps, examples int, rate float32) (*learned, error) {
	values := w.net.NewValues()
	gradient := w.net.NewValues()
	w.net.Initialize(values, rand.New(rand.NewPCG(1, 0)))
	pass, err := w.net.NewPass(examples, true)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(2, 0))
	l := &learned{}
	for range steps {
		if w.ctx.Err() != nil {
			return nil, w.ctx.Err()
		}
		loss, err := pass.Forward(values, w.batch(rng, examples), 1/float64(examples))
		if err != nil {
			return nil, err
		}
		l.losses = append(l.losses, loss)
		for layer := w.net.Layers() - 1; layer >= 0; layer-- {
			pass.Backward(layer, values, gradient)
		}
		for k, g := range gradient.Params {
			for i, v := range g {
				values.Params[k][i] -= rate * v
			}
		}
	}
	l.accuracy, err = w.right(values)
	return l, err
}
