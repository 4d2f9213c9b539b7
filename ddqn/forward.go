package ddqn

import "slices"

// plain is a network with its dueling head folded into one linear layer from the last hidden layer to Q.
type plain struct {
	spec   Spec
	layers []layer
}

// share returns the folded form of n that uses the hidden layers of n itself; refold must follow every change.
func share(n *Network) *plain {
	h := n.head()
	flat := make([]float32, (h.in+1)*n.spec.outputs())
	p := &plain{spec: n.spec, layers: slices.Clone(n.layers)}
	p.layers[len(p.layers)-1] = layersOver([]int{h.in, n.spec.outputs()}, flat)[0]
	p.refold(n)
	return p
}

func (p *plain) refold(n *Network) {
	folded, h := p.layers[len(p.layers)-1], n.head()
	duel(folded.w, h.w, p.spec.Actions, p.spec.Objectives)
	duel(folded.b, h.b, p.spec.Actions, p.spec.Objectives)
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
