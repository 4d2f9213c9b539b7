// Package measure times a network of package train on this machine, layer by layer, as a profile to plan with. See the
// Example.
package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/planner/execute"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
	"github.com/evenkeel/evenkeel/train"
)

// Options say what is measured.
type Options struct {
	Model        string
	Device       string        // what this machine is called in the profile
	MicroBatches []int         // samples, rising
	Each         time.Duration // time for each layer and micro-batch, at least three turns
}

// Network measures every unit of a network (see execute.Units) forward and backward, with AdamW's update: medians of
// turns. Activations are what a unit holds from its forward to its backward pass. progress may be nil.
func Network(ctx context.Context, n *train.Network, o Options, progress func(done, total int)) (*layerprofile.Profile, error) {
	p := &layerprofile.Profile{Model: o.Model}
	units := execute.Units(n)
	for i, u := range units {
		part, err := n.Part(u.From, u.To)
		if err != nil {
			return nil, err
		}
		_, out := part.Sizes()
		l := layerprofile.Layer{Name: u.Name, Output: 4 * float64(out)}
		for layer := u.From; layer < u.To; layer++ {
			for _, q := range n.LayerParams(layer) {
				l.Parameters += float64(q.Len())
			}
		}
		for k, b := range o.MicroBatches {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if progress != nil {
				progress(i*len(o.MicroBatches)+k, len(units)*len(o.MicroBatches))
			}
			r, err := unit(part, n, b, o.Each, i == len(units)-1)
			if err != nil {
				return nil, fmt.Errorf("measure: %s with %d samples: %w", u.Name, b, err)
			}
			r.Device, r.Tensor, r.MicroBatch = o.Device, 1, b
			l.Runs = append(l.Runs, r)
		}
		p.Layers = append(p.Layers, l)
	}
	return p, p.Finish(o.Model)
}

// unit times one part with so many samples.
func unit(part *train.Part, n *train.Network, samples int, each time.Duration, last bool) (layerprofile.Run, error) {
	var r layerprofile.Run
	rng := rand.New(rand.NewPCG(uint64(samples), 1))
	var state [4]*train.Values // weights, gradients, two moments
	for i := range state {
		var err error
		if state[i], err = part.NewValues(nil); err != nil {
			return r, err
		}
	}
	part.Initialize(state[0], rng)
	var held train.Arena
	pass, err := part.NewPass(samples, nil)
	if err != nil {
		return r, err
	}
	if _, err := pass.Beside(&held); err != nil {
		return r, err
	}
	r.Activation = float64(held.Used()) / float64(samples)
	in, out := part.Sizes()
	inputs := make([]float32, samples*in)
	for i := range inputs {
		inputs[i] = float32(rng.IntN(max(2, min(n.Classes(), 64)))) // tokens too
	}
	targets := make([]int32, samples*n.Positions())
	adam := train.Optimizer{Method: train.AdamW, Rate: 1e-6}
	var forward, backward, update []float64
	begun := time.Now()
	for turn := uint64(1); turn <= 3 || time.Since(begun) < each; turn++ {
		at := time.Now()
		if _, err := pass.Forward(state[0], inputs); err != nil {
			return r, err
		}
		if last {
			if _, err := pass.Loss(targets, 1/float64(len(targets))); err != nil {
				return r, err
			}
		} else {
			gradient := pass.OutputGradient()
			for i := range gradient {
				gradient[i] = 1 / float32(samples*out)
			}
		}
		forward = append(forward, time.Since(at).Seconds())
		at = time.Now()
		pass.Backward(state[0], state[1])
		backward = append(backward, time.Since(at).Seconds())
		at = time.Now()
		for i, w := range state[0].Params {
			adam.Update(turn, w, state[1].Params[i], state[2].Params[i], state[3].Params[i])
		}
		update = append(update, time.Since(at).Seconds())
	}
	r.Forward, r.Backward, r.Update = median(forward), median(backward), median(update)
	return r, nil
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
