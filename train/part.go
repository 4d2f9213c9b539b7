package train

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Part is a run of consecutive layers of a network, such as a stage of a pipeline. Only activations and their gradients
// cross its ends. Parts one after the other compute the same bits as the whole network.
type Part struct {
	net   *Network // the layers alone
	whole *Network
	first int // number of the part's first parameter in the whole
	last  bool
	begin bool
}

// Part makes a part of the layers from..to-1. The error wraps ErrUsage if a residual connection crosses one of its ends.
func (n *Network) Part(from, to int) (*Part, error) {
	if from < 0 || to > len(n.layers) || from >= to {
		return nil, fmt.Errorf("%w: layers %d to %d of a network of %d", ErrUsage, from, to-1, len(n.layers))
	}
	if n.Crossed(from) || n.Crossed(to) {
		return nil, fmt.Errorf("%w: layers %s to %s are no part of their own: a residual connection leads out of them or into them", ErrUsage, n.layers[from].name, n.layers[to-1].name)
	}
	p := &Part{net: &Network{layers: slices.Clone(n.layers[from:to]), positions: n.positions, classes: n.classes}, whole: n,
		first: n.layers[from].first, begin: from == 0, last: to == len(n.layers)}
	for i := range p.net.layers {
		l := &p.net.layers[i]
		p.net.params = append(p.net.params, n.params[l.first:][:l.count]...)
		l.first -= p.first
		if l.from >= 0 {
			l.from -= from
		}
	}
	return p, nil
}

// Crossed reports whether a residual connection leads across the boundary before a layer, so that no part can end there.
func (n *Network) Crossed(layer int) bool {
	for i, l := range n.layers {
		if l.from >= 0 && l.from < layer && i >= layer {
			return true
		}
	}
	return false
}

// Sizes are the floats of a sample that go in and come out.
func (p *Part) Sizes() (in, out int) {
	return p.net.layers[0].in, p.net.layers[len(p.net.layers)-1].out
}

// NewValues makes zeros for the part's parameters.
func (p *Part) NewValues() *Values { return p.net.NewValues() }

// Initialize sets weights to what Network.Initialize of the whole network gives them, and draws as many numbers.
func (p *Part) Initialize(w *Values, rng *rand.Rand) {
	for i, q := range p.whole.params {
		if k := i - p.first; k >= 0 && k < len(w.Params) {
			initialize(w.Params[k], q, rng)
			continue
		}
		if q.Std > 0 {
			for range q.Len() {
				rng.NormFloat64()
			}
		}
	}
}

// PartPass is the memory for one forward and backward pass of a fixed number of samples through a part. It serves one
// goroutine at a time.
type PartPass struct {
	part *Part
	pass *Pass
}

// NewPass makes one.
func (p *Part) NewPass(samples int) (*PartPass, error) {
	return p.newPass(samples, &lender{})
}

// OnePassEach makes a pass for each part, all in the same memory: what one holds is lost when another is used.
func OnePassEach(parts []*Part, samples int) ([]*PartPass, error) {
	m := &lender{}
	var passes []*PartPass
	for _, p := range parts {
		m.free = slices.Clone(m.all)
		pass, err := p.newPass(samples, m)
		if err != nil {
			return nil, err
		}
		passes = append(passes, pass)
	}
	return passes, nil
}

func (p *Part) newPass(samples int, m *lender) (*PartPass, error) {
	pass, _, err := p.net.newPass(samples, m)
	if err != nil {
		return nil, err
	}
	layers := p.net.layers
	pass.hold(m)
	pass.planGradients(m, m.borrow(samples*layers[len(layers)-1].out), !p.begin)
	return &PartPass{p, pass}, m.err
}

// Beside makes a pass for a second batch in flight. It has activations of its own and shares the memory that is used
// only within a call, so both passes serve the same goroutine.
func (p *PartPass) Beside() (*PartPass, error) {
	other := *p.pass
	other.acts, other.kept = nil, nil
	m := &lender{}
	other.hold(m)
	return &PartPass{p.part, &other}, m.err
}

// Forward takes samples x in floats through the part and returns samples x out, which are the pass's own and stay until
// the next Forward; x must stay until Backward.
func (p *PartPass) Forward(w *Values, x []float32) ([]float32, error) {
	if want := p.pass.samples * p.part.net.layers[0].in; len(x) != want {
		return nil, fmt.Errorf("%w: %d floats into a part that takes %d", ErrUsage, len(x), want)
	}
	p.pass.forward(w, Batch{Inputs: x})
	return p.pass.logits(), nil
}

// Loss returns the cross-entropy of the last Forward's result, summed over the targets and times scale, and writes its
// gradient to OutputGradient. Only the part with the network's last layer has a loss.
func (p *PartPass) Loss(targets []int32, scale float64) (float64, error) {
	n := p.part.net
	if want := p.pass.samples * n.positions; !p.part.last || len(targets) != want {
		return 0, fmt.Errorf("%w: %d targets; want %d, in the last part", ErrUsage, len(targets), want)
	}
	if err := n.checkTargets(targets); err != nil {
		return 0, err
	}
	return crossEntropy(p.pass.logits(), targets, n.classes, scale, p.OutputGradient()), nil
}

// OutputGradient is where the gradient at the output is written before Backward, samples x out floats.
func (p *PartPass) OutputGradient() []float32 { return p.pass.grads[len(p.pass.grads)-1] }

// Backward sets g to the gradients at the part's parameters and returns the gradient at its input, samples x in floats
// that stay until the next call of this pass or one beside it; nil in the first part.
func (p *PartPass) Backward(w, g *Values) []float32 {
	clear(p.pass.begun)
	for layer := len(p.part.net.layers) - 1; layer >= 0; layer-- {
		p.pass.Backward(layer, w, g)
	}
	return p.pass.grads[0]
}
