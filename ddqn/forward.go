package ddqn

import "slices"

// plain is a network with its dueling head folded into one linear layer from the last hidden layer to Q.
type plain struct {
	spec   Spec
	layers []layer
	whole  layer // the last one with all objectives
	only   []int // the objectives of the last layer in layers; none: all, and it is whole
}

// share returns the folded form of n that uses the hidden layers of n itself; refold must follow every change. Where objectives are
// named its last layer has these alone.
func share(n *Network, only ...int) *plain {
	h := n.head()
	last := func(outputs int) layer {
		return layersOver([]int{h.in, outputs}, make([]float32, (h.in+1)*outputs))[0]
	}
	p := &plain{spec: n.spec, layers: slices.Clone(n.layers), whole: last(n.spec.outputs()), only: only}
	used := p.whole
	if len(only) > 0 {
		used = last(n.spec.Actions * len(only))
	}
	p.layers[len(p.layers)-1] = used
	p.refold(n)
	return p
}

func (p *plain) refold(n *Network) {
	used, h := p.layers[len(p.layers)-1], n.head()
	duel(p.whole.w, h.w, p.spec.Actions, p.spec.Objectives)
	duel(p.whole.b, h.b, p.spec.Actions, p.spec.Objectives)
	if len(p.only) > 0 {
		p.pick(used.w, p.whole.w)
		p.pick(used.b, p.whole.b)
	}
}

// pick copies the values of the objectives in only, out of those of all.
func (p *plain) pick(dst, src []float32) {
	for ; len(src) > 0; src = src[p.spec.Objectives:] {
		for _, o := range p.only {
			dst[0] = src[o]
			dst = dst[1:]
		}
	}
}

// scorer is the forward pass for a fixed number of rows: one dense operation after another. Gorgonia's machine would
// do the same with a goroutine and 26 allocations for each run, which takes longer than scoring a few rows.
type scorer struct {
	x     []float32 // rows x Features, the input
	q     []float32 // rows x Actions x Objectives, the output
	plain *plain
	ops   []*dense // one per layer
}

func newScorer(p *plain, rows int) *scorer {
	s := &scorer{x: make([]float32, rows*p.spec.Features), plain: p}
	for i, l := range p.layers {
		op := newDense(rows, l.in, l.out, i < len(p.layers)-1, false)
		s.ops, s.q = append(s.ops, op), op.buf
	}
	return s
}

func (s *scorer) run() {
	h := s.x
	for i, op := range s.ops {
		op.run(h, s.plain.layers[i].w, s.plain.layers[i].b)
		h = op.buf
	}
}
