package train

import (
	"fmt"
	"slices"

	"evenkeel/train/layer"
)

// Pass is the memory for taking batches of a fixed number of samples through a network, forward, or forward and
// backward. It serves one goroutine at a time.
type Pass struct {
	net     *Network
	samples int
	acts    [][]float32 // what goes into each layer, then the logits
	kept    [][]float32 // what Forward leaves for Backward
	scratch []float32
	grads   [][]float32 // gradients at acts; nil at the network's inputs, and all of them in a forward pass
	added   []int       // per layer, how many residual connections take its input
	begun   []bool      // per layer, its input's gradient holds what a residual connection gave
	spare   []float32   // where a layer's DX goes if there is something to add it to
	job     layer.Call  // what the layer at work was given; one for all calls, so that none allocates
}

// NewPass makes one for batches of so many samples. A training pass holds all activations until Backward has used
// them; one that only goes forward shares memory between layers that do not live at the same time.
func (n *Network) NewPass(samples int, training bool) (*Pass, error) {
	m := &lender{}
	p, shared, err := n.newPass(samples, m)
	if err != nil {
		return nil, err
	}
	if training {
		p.hold(m)
		p.planGradients(m, p.logits(), false) // the loss writes its gradient over the logits
		return p, m.err
	}
	common := m.borrow(shared)
	waiting := slices.Clone(p.added)
	p.acts = append(p.acts, nil) // the batch's
	for i, l := range n.layers {
		p.acts = append(p.acts, m.borrow(samples*l.out))
		p.kept = append(p.kept, common)
		if l.from >= 0 {
			if waiting[l.from]--; waiting[l.from] == 0 {
				m.giveBack(p.acts[l.from])
			}
		}
		if waiting[i] == 0 && i > 0 {
			m.giveBack(p.acts[i])
		}
	}
	return p, m.err
}

// newPass makes a pass that has its scratch memory only. kept is the most floats that one layer leaves for Backward.
func (n *Network) newPass(samples int, m *lender) (p *Pass, kept int, _ error) {
	if samples < 1 {
		return nil, 0, fmt.Errorf("%w: a pass of %d samples", ErrUsage, samples)
	}
	p = &Pass{net: n, samples: samples, added: make([]int, len(n.layers)+1), begun: make([]bool, len(n.layers)+1)}
	scratch := 0
	for _, l := range n.layers {
		if l.Layer == nil {
			p.added[l.from]++
			continue
		}
		k, s := l.Memory(samples)
		kept, scratch = max(kept, k), max(scratch, s)
	}
	p.scratch = m.borrow(scratch)
	return p, kept, nil
}

// hold makes the memory for what Forward leaves for Backward.
func (p *Pass) hold(m *lender) {
	p.acts = append(p.acts, nil) // the caller's
	for _, l := range p.net.layers {
		p.acts = append(p.acts, m.borrow(p.samples*l.out))
		var kept []float32
		if l.Layer != nil {
			k, _ := l.Memory(p.samples)
			kept = m.borrow(k)
		}
		p.kept = append(p.kept, kept)
	}
}

// planGradients shares memory between gradients in the order in which Backward uses them. output is the memory of the
// gradient at the output; input says whether a gradient at the input is needed.
func (p *Pass) planGradients(m *lender, output []float32, input bool) {
	layers := p.net.layers
	p.grads = make([][]float32, len(layers)+1)
	spare := 0
	for i, takers := range p.added {
		if takers > 0 {
			spare = max(spare, p.samples*layers[i].in)
		}
	}
	p.spare = m.borrow(spare)
	p.grads[len(layers)] = output
	for i := len(layers) - 1; i >= 0; i-- {
		if p.grads[i] == nil && (i > 0 || input) {
			p.grads[i] = m.borrow(p.samples * layers[i].in)
		}
		if from := layers[i].from; from >= 0 && p.grads[from] == nil {
			p.grads[from] = m.borrow(p.samples * layers[i].in)
		}
		if i+1 < len(layers) {
			m.giveBack(p.grads[i+1])
		}
	}
}

// maxFloats is the most that a lender allocates at a time.
const maxFloats = 1 << 40

// lender gives memory out and takes it back.
type lender struct {
	free [][]float32
	all  [][]float32 // whatever was allocated
	err  error
}

func (m *lender) borrow(n int) []float32 {
	if n == 0 {
		return nil
	}
	best := -1
	for i, f := range m.free {
		if cap(f) >= n && (best < 0 || cap(f) < cap(m.free[best])) {
			best = i
		}
	}
	if best >= 0 {
		f := m.free[best][:n]
		m.free = slices.Delete(m.free, best, best+1)
		return f
	}
	if m.err != nil {
		return nil
	}
	if n < 0 || n > maxFloats { // of sizes whose product is none
		m.err = fmt.Errorf("%w: a pass needs %d floats at a time", ErrUsage, n)
		return nil
	}
	f := make([]float32, n)
	m.all = append(m.all, f)
	return f
}

func (m *lender) giveBack(f []float32) { m.free = append(m.free, f) }

// Samples is how many a batch must have.
func (p *Pass) Samples() int { return p.samples }

// Loss is the mean cross-entropy of a batch.
func (p *Pass) Loss(w *Values, b Batch) (float64, error) {
	if err := p.check(b); err != nil {
		return 0, err
	}
	p.forward(w, b)
	return crossEntropy(p.logits(), b.Targets, p.net.classes, 1/float64(len(b.Targets)), nil), nil
}

func (p *Pass) logits() []float32 { return p.acts[len(p.acts)-1] }

func (p *Pass) check(b Batch) error {
	samples, err := p.net.check(b)
	if err == nil && samples != p.samples {
		err = fmt.Errorf("%w: a batch of %d samples in a pass for %d", ErrUsage, samples, p.samples)
	}
	return err
}

func (p *Pass) forward(w *Values, b Batch) {
	p.acts[0] = b.Inputs
	for i, l := range p.net.layers {
		if l.Layer == nil {
			y := p.acts[i+1]
			for j, x := range p.acts[i] {
				y[j] = x + p.acts[l.from][j]
			}
			continue
		}
		l.Forward(p.call(w, i))
	}
}

func (p *Pass) call(w *Values, number int) *layer.Call {
	l := p.net.layers[number]
	p.job = layer.Call{N: p.samples, W: w.Params[l.first:][:l.count], X: p.acts[number], Y: p.acts[number+1], Kept: p.kept[number], Scratch: p.scratch}
	return &p.job
}

// Forward takes a batch through a training pass and returns its cross-entropy, summed over the targets and times
// scale. With scale 1 / (targets of the whole batch), the losses of parts of a batch add up to the batch's mean, and so
// do their gradients. After Forward, call Backward for each layer, from the last to the first.
func (p *Pass) Forward(w *Values, b Batch, scale float64) (float64, error) {
	if p.grads == nil {
		return 0, fmt.Errorf("%w: Forward on a pass that was not made for training", ErrUsage)
	}
	if err := p.check(b); err != nil {
		return 0, err
	}
	return p.run(w, b, scale), nil
}

// run is Forward of a batch that was checked.
func (p *Pass) run(w *Values, b Batch, scale float64) float64 {
	p.forward(w, b)
	clear(p.begun)
	return crossEntropy(p.logits(), b.Targets, p.net.classes, scale, p.logits())
}

// Backward sets the layer's gradients in g. The weights of this layer are not used again before the next Forward.
func (p *Pass) Backward(layer int, w, g *Values) {
	l := p.net.layers[layer]
	dy := p.grads[layer+1]
	if l.Layer == nil {
		p.add(layer, dy)
		p.add(l.from, dy)
		return
	}
	call := p.call(w, layer)
	call.DY, call.DW = dy, g.Params[l.first:][:l.count]
	switch {
	case p.grads[layer] == nil: // nobody wants the inputs' gradient
		l.Backward(call)
	case p.begun[layer]:
		call.DX = p.spare[:len(p.grads[layer])]
		l.Backward(call)
		p.add(layer, call.DX)
	default:
		call.DX = p.grads[layer]
		l.Backward(call)
	}
}

// add adds to the gradient at a layer's input.
func (p *Pass) add(layer int, d []float32) {
	g := p.grads[layer]
	if !p.begun[layer] {
		copy(g, d)
		p.begun[layer] = true
		return
	}
	for i, v := range d {
		g[i] += v
	}
}
