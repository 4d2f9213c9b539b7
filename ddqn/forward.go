package ddqn

import (
	"slices"

	"evenkeel/ddqn/internal/dueling"
	"evenkeel/internal/matrix"
)

// plain is a network with its dueling head folded into one linear layer from the last hidden layer to Q.
type plain struct {
	spec   Spec
	layers []Layer
	whole  Layer // the last layer, with all objectives
	only   []int // the objectives of the last layer in layers; none: all, and that layer is whole
}

// share returns the folded form of n, which uses the hidden layers of n itself; call refold after every change of n. If
// objectives are named, its last layer has only these.
func share(n *Network, only ...int) *plain {
	h := n.head()
	last := func(outputs int) Layer {
		return layersOver([]int{h.In, outputs}, make([]float32, (h.In+1)*outputs))[0]
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
	dueling.Fold(p.whole.W, h.W, p.spec.Actions, p.spec.Objectives)
	dueling.Fold(p.whole.B, h.B, p.spec.Actions, p.spec.Objectives)
	if len(p.only) > 0 {
		p.pick(used.W, p.whole.W)
		p.pick(used.B, p.whole.B)
	}
}

// pick copies the values of the objectives in only from src, which has all objectives.
func (p *plain) pick(dst, src []float32) {
	for ; len(src) > 0; src = src[p.spec.Objectives:] {
		for _, o := range p.only {
			dst[0] = src[o]
			dst = dst[1:]
		}
	}
}

// scorer is the forward pass for a fixed number of rows: one dense layer after another.
type scorer struct {
	x       []float32   // rows x Features, the input
	outputs [][]float32 // of every layer; the last one is Q, rows x Actions x Objectives
	plain   *plain
	rows    int
	scratch matrix.Scratch
}

func newScorer(p *plain, rows int) *scorer {
	s := &scorer{x: make([]float32, rows*p.spec.Features), plain: p, rows: rows}
	for _, l := range p.layers {
		s.outputs = append(s.outputs, make([]float32, rows*l.Out))
	}
	return s
}

// run scores the rows in x and returns Q, valid until the next run.
func (s *scorer) run() []float32 {
	h, low := s.x, float32(0)
	for i, l := range s.plain.layers {
		if i == len(s.plain.layers)-1 {
			low = matrix.Unbounded
		}
		matrix.Affine(matrix.Of(s.outputs[i], s.rows, l.Out), matrix.Of(h, s.rows, l.In), matrix.Of(l.W, l.In, l.Out), l.B, low, &s.scratch)
		h = s.outputs[i]
	}
	return h
}
