package ddqn

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// building serialises the construction of graphs: Gorgonia keeps package-level state there, not when running.
var building sync.Mutex

// plain is a network with its dueling head folded into one linear layer from the last hidden layer to Q.
type plain struct {
	spec   Spec
	hidden []layer
	head   layer
}

// share returns the folded form of n that uses the hidden layers of n itself; refold must follow every change.
func share(n *Network) *plain {
	h := n.head()
	flat := make([]float32, (h.in+1)*n.spec.outputs())
	head := layersOver([]int{h.in, n.spec.outputs()}, flat)[0]
	p := &plain{spec: n.spec, hidden: n.layers[:len(n.layers)-1], head: head}
	p.refold(n)
	return p
}

func (p *plain) refold(n *Network) {
	h := n.head()
	duel(p.head.w, h.w, p.spec.Actions, p.spec.Objectives)
	duel(p.head.b, h.b, p.spec.Actions, p.spec.Objectives)
}

// scorer is a forward-only graph for a fixed number of rows.
type scorer struct {
	x       []float32 // rows x Features, the input
	q       []float32 // rows x Actions x Objectives, the output
	machine gorgonia.VM
}

func newScorer(p *plain, rows int) (*scorer, error) {
	building.Lock()
	defer building.Unlock()
	g := gorgonia.NewGraph()
	s := &scorer{x: make([]float32, rows*p.spec.Features)}
	h := input(g, "x", s.x, rows, p.spec.Features)
	for i, l := range p.hidden {
		var err error
		if h, _, err = applyDense(g, fmt.Sprintf("hidden.%d", i), h, l, newDense(rows, l.in, l.out, true, i > 0)); err != nil {
			return nil, err
		}
	}
	op := newDense(rows, p.head.in, p.head.out, false, true)
	if _, _, err := applyDense(g, "head", h, p.head, op); err != nil {
		return nil, err
	}
	s.q = op.buf
	s.machine = gorgonia.NewTapeMachine(g)
	return s, nil
}

func (s *scorer) run() error {
	s.machine.Reset() // a second RunAll without it does nothing
	return s.machine.RunAll()
}

// input is a node over a slice, which the caller goes on writing to.
func input(g *gorgonia.ExprGraph, name string, data []float32, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...),
		gorgonia.WithName(name), gorgonia.WithValue(wrap(data, shape...)))
}

// applyDense adds a dense layer over the weights of l, and returns its output and its two weight nodes.
func applyDense(g *gorgonia.ExprGraph, name string, x *gorgonia.Node, l layer, op *dense) (*gorgonia.Node, gorgonia.Nodes, error) {
	w := input(g, name+".weight", l.w, l.in, l.out)
	b := input(g, name+".bias", l.b, l.out)
	y, err := gorgonia.ApplyOp(op, x, w, b)
	if err != nil {
		return nil, nil, fmt.Errorf("ddqn: build layer %s: %w", name, err)
	}
	return y, gorgonia.Nodes{w, b}, nil
}
