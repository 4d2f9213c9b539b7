package train

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Measured is what one training step took.
type Measured struct {
	Seconds   float64
	PeakBytes int64 // weights, gradients, moments and activations
}

// MeasureStep trains one step of a transformer on batch made-up sequences of c.Length tokens, with AdamW, within a
// budget of bytes (0: no limit). It is real work on this machine: forward, backward, update. The error wraps
// ErrOutOfMemory where the step would pass the budget, and nothing beyond it has been allocated then.
func MeasureStep(c TransformerConfig, batch int, budget int64) (Measured, error) {
	n, err := Transformer(c)
	if err != nil {
		return Measured{}, err
	}
	a := &Arena{Budget: budget}
	m, err := measure(n, batch, a)
	if err != nil {
		return Measured{}, fmt.Errorf("%d sequences of %d tokens: %w", batch, c.Length, err)
	}
	return m, nil
}

func measure(n *Network, samples int, a *Arena) (Measured, error) {
	o := Optimizer{Method: AdamW, Rate: 1e-3}
	var state [4]*Values // weights, gradients, two moments
	for i := range state {
		var err error
		if state[i], err = n.NewValues(a); err != nil {
			return Measured{}, err
		}
	}
	pass, err := n.NewPass(samples, true, a)
	if err != nil {
		return Measured{}, err
	}
	inputs, err := a.floats(samples * n.InputSize())
	if err != nil {
		return Measured{}, err
	}
	rng := rand.New(rand.NewPCG(uint64(samples), uint64(n.InputSize())))
	b := Batch{Inputs: inputs, Targets: make([]int32, samples*n.positions)}
	for i := range inputs {
		inputs[i] = float32(rng.IntN(n.classes))
	}
	for i := range b.Targets {
		b.Targets[i] = int32(rng.IntN(n.classes))
	}
	weights, gradients := state[0], state[1]
	n.Initialize(weights, rng)
	begun := time.Now()
	if _, err := pass.Forward(weights, b, 1/float64(len(b.Targets))); err != nil {
		return Measured{}, err
	}
	for l := n.Layers() - 1; l >= 0; l-- {
		pass.Backward(l, weights, gradients)
		o.Update(1, weights.Layers[l], gradients.Layers[l], state[2].Layers[l], state[3].Layers[l])
	}
	return Measured{Seconds: time.Since(begun).Seconds(), PeakBytes: a.Used()}, nil
}
