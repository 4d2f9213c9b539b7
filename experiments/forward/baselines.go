package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/evenkeel/evenkeel/train"
)

// batch draws examples with replacement.
func (w *world) batch(rng *rand.Rand, n int) train.Batch {
	inputs, targets, _, _ := w.training.Shape()
	b := train.Batch{Inputs: make([]float32, n*inputs), Targets: make([]int32, n*targets)}
	for i := range n {
		w.training.Sample(rng.IntN(w.training.Len()), b.Inputs[i*inputs:][:inputs], b.Targets[i*targets:][:targets])
	}
	return b
}

// mezo is serial MeZO (Malladi et al., NeurIPS 2023): normal directions made again from a seed, weights in float32,
// moved by +eps, -2 eps, +eps; rate gives the learning rate of a step. trace, if not nil, gets the weights before and
// after each step's three moves.
func (w *world) mezo(steps, examples int, rate func(step int) float64, trace func(step int, before, after *train.Values)) (*learnt, error) {
	const eps = 1e-3
	values, err := w.net.NewValues(nil)
	if err != nil {
		return nil, err
	}
	w.net.Initialize(values, rand.New(rand.NewPCG(1, 0)))
	before, err := w.net.NewValues(nil)
	if err != nil {
		return nil, err
	}
	pass, err := w.net.NewPass(examples, false, nil)
	if err != nil {
		return nil, err
	}
	move := func(step int, by float32) {
		rng := rand.New(rand.NewPCG(uint64(step), 7))
		for _, p := range values.Params {
			for i := range p {
				p[i] += float32(by * float32(rng.NormFloat64()))
			}
		}
	}
	rng := rand.New(rand.NewPCG(2, 0))
	var losses []float64
	for step := range steps {
		if w.ctx.Err() != nil {
			return nil, w.ctx.Err()
		}
		b := w.batch(rng, examples)
		if trace != nil {
			before.Copy(values)
		}
		move(step, eps)
		plus, err := pass.Loss(values, b)
		if err != nil {
			return nil, err
		}
		move(step, -2*eps)
		minus, err := pass.Loss(values, b)
		if err != nil {
			return nil, err
		}
		move(step, eps)
		if trace != nil {
			trace(step, before, values)
		}
		losses = append(losses, (plus+minus)/2)
		move(step, float32(-rate(step)*(plus-minus)/(2*eps)))
	}
	return w.learnt(losses, values)
}

// learnt is the outcome of a baseline.
type learnt struct {
	losses   []float64
	accuracy float64 // on what was held out
}

func (w *world) learnt(losses []float64, values *train.Values) (*learnt, error) {
	right, _, err := w.net.Evaluate(values, w.held)
	return &learnt{losses, float64(right) / float64(w.held.Len())}, err
}

// last is the mean loss of the last hundred steps; diverged runs have none.
func (l *learnt) last() float64 {
	sum := 0.0
	tail := l.losses[max(0, len(l.losses)-100):]
	for _, x := range tail {
		sum += x / float64(len(tail))
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return sum
}

// bestMezo is the best of a grid: rates, constant and cosine.
func (w *world) bestMezo(steps, examples int) (best *learnt, name string, err error) {
	for _, r := range []float64{1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2} {
		for _, schedule := range []string{"constant", "cosine"} {
			rate := func(step int) float64 {
				if schedule == "constant" {
					return r
				}
				return r * 0.5 * (1 + math.Cos(math.Pi*float64(step)/float64(steps)))
			}
			l, err := w.mezo(steps, examples, rate, nil)
			if err != nil {
				return nil, "", err
			}
			if best == nil || l.last() < best.last() {
				best, name = l, fmt.Sprintf("rate %g, %s", r, schedule)
			}
		}
	}
	return best, name, nil
}

// bestBackPropagation is the best of a grid of rates.
func (w *world) bestBackPropagation(steps, examples int) (best *learnt, name string, err error) {
	for _, rate := range []float32{0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2} {
		l, err := w.backPropagation(steps, examples, rate)
		if err != nil {
			return nil, "", err
		}
		if best == nil || l.last() < best.last() {
			best, name = l, fmt.Sprintf("rate %g", rate)
		}
	}
	return best, name, nil
}

// backPropagation is plain SGD.
func (w *world) backPropagation(steps, examples int, rate float32) (*learnt, error) {
	values, err := w.net.NewValues(nil)
	if err != nil {
		return nil, err
	}
	gradient, err := w.net.NewValues(nil)
	if err != nil {
		return nil, err
	}
	w.net.Initialize(values, rand.New(rand.NewPCG(1, 0)))
	pass, err := w.net.NewPass(examples, true, nil)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(2, 0))
	var losses []float64
	for range steps {
		if w.ctx.Err() != nil {
			return nil, w.ctx.Err()
		}
		loss, err := pass.Forward(values, w.batch(rng, examples), 1/float64(examples))
		if err != nil {
			return nil, err
		}
		losses = append(losses, loss)
		for layer := w.net.Layers() - 1; layer >= 0; layer-- {
			pass.Backward(layer, values, gradient)
		}
		for k, g := range gradient.Params {
			for i, v := range g {
				values.Params[k][i] -= rate * v
			}
		}
	}
	return w.learnt(losses, values)
}

// drift is what MeZO's moves in float32 leave behind, which fixed point does not.
func (w *world) drift(b *strings.Builder) error {
	changed, total, square := 0, 0, 0.0
	drifted, err := w.net.NewValues(nil)
	if err != nil {
		return err
	}
	_, err = w.mezo(w.steps, 64, func(int) float64 { return 3e-3 }, func(step int, before, after *train.Values) {
		for k, p := range after.Params {
			for i, v := range p {
				d := v - before.Params[k][i]
				drifted.Params[k][i] += d
				if step == 0 {
					total++
					if d != 0 {
						changed++
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	for _, p := range drifted.Params {
		for _, v := range p {
			square += float64(v) * float64(v)
		}
	}
	fmt.Fprintf(b, "\n## Taking back\n\nSerial MeZO in float32 (+eps, -2 eps, +eps): after one step %.0f%% of the weights are not what they were; after %d steps the errors add up to %.1e (root mean square). In fixed point: 0 and 0, by a property test.\n",
		100*float64(changed)/float64(total), w.steps, math.Sqrt(square/float64(total)))
	return nil
}
