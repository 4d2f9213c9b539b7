package main

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/evenkeel/evenkeel/env"
)

// graph is the loss of a network and its gradient in Gorgonia, for a fixed number of rows, whole fleets; the GRU is unrolled.
type graph struct {
	inputs  [][]float32 // rows x wide, oldest round first; of a network that is not recurrent only the newest
	taken   []float32   // rows x actions, a one at the action taken
	rewards []float32   // of it
	loss    gorgonia.Value
	values  gorgonia.Value // of all actions
	grads   []gorgonia.Value
	machine gorgonia.VM
}

// builder puts nodes together and remembers the first error.
type builder struct {
	g       *gorgonia.ExprGraph
	weights gorgonia.Nodes
	err     error
}

func (b *builder) input(name string, data []float32, rows, cols int) *gorgonia.Node {
	return gorgonia.NewMatrix(b.g, tensor.Float32, gorgonia.WithShape(rows, cols), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(data))))
}

func (b *builder) layer(l layer) *gorgonia.Node {
	n := b.input(l.name, l.w, l.in, l.out)
	b.weights = append(b.weights, n)
	return n
}

// do applies an operation, unless one before it failed.
func (b *builder) do(op func() (*gorgonia.Node, error)) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	n, err := op()
	b.err = err
	return n
}

// times is the product; constant: the left operand needs no gradient.
func (b *builder) times(left, right *gorgonia.Node, constant bool) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) {
		return gorgonia.ApplyOp(newProduct(left.Shape()[0], right.Shape()[1], false, false, constant), left, right)
	})
}

func (b *builder) both(op func(x, y *gorgonia.Node) (*gorgonia.Node, error), x, y *gorgonia.Node) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) { return op(x, y) })
}

func (b *builder) one(op func(x *gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	return b.do(func() (*gorgonia.Node, error) { return op(x) })
}

// newGraph builds the graph over the weights of n, which later runs read.
func newGraph(n *network, rows int) (*graph, error) {
	b := &builder{g: gorgonia.NewGraph()}
	t := &graph{taken: make([]float32, rows*len(env.Actions)), rewards: make([]float32, rows)}
	rounds := 1
	if n.recurrent {
		rounds = window
	}
	var x gorgonia.Nodes
	for k := range rounds {
		t.inputs = append(t.inputs, make([]float32, rows*wide))
		x = append(x, b.input(fmt.Sprintf("x%d", k), t.inputs[k], rows, wide))
	}
	ones := b.input("ones", filled(rows, 1), rows, 1)
	layers := map[string]*gorgonia.Node{}
	for _, l := range n.layers() {
		layers[l.name] = b.layer(*l)
	}

	sum := b.times(x[rounds-1], layers["first"], true)
	if n.recurrent {
		h := b.gru(x, layers)
		sum = b.both(gorgonia.Add, sum, b.times(h, layers["first.own"], false))
		mean := b.times(b.input("pooling", pooling(rows), rows, rows), h, true)
		sum = b.both(gorgonia.Add, sum, b.times(mean, layers["first.pooled"], false))
	}
	h := b.one(gorgonia.Rectify, sum)
	h = b.one(gorgonia.Rectify, b.both(gorgonia.Add, b.times(h, layers["second"], false), b.times(ones, layers["second.bias"], true)))
	head := b.both(gorgonia.Add, b.times(h, layers["head"], false), b.times(ones, layers["head.bias"], true))
	values := b.times(head, b.input("dueling", dueling(), outputs, len(env.Actions)), false)

	picked := b.both(gorgonia.HadamardProd, values, b.input("taken", t.taken, rows, len(env.Actions)))
	chosen := b.times(picked, b.input("sum", filled(len(env.Actions), 1), len(env.Actions), 1), false)
	loss := b.one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Mean(x) },
		b.one(gorgonia.Square, b.both(gorgonia.Sub, chosen, b.input("rewards", t.rewards, rows, 1))))
	if b.err != nil {
		return nil, fmt.Errorf("recurrent: build graph: %w", b.err)
	}
	grads, err := gorgonia.Grad(loss, b.weights...)
	if err != nil {
		return nil, fmt.Errorf("recurrent: differentiate: %w", err)
	}
	gorgonia.Read(loss, &t.loss)
	gorgonia.Read(values, &t.values)
	t.grads = make([]gorgonia.Value, len(grads))
	for k, g := range grads {
		gorgonia.Read(g, &t.grads[k])
	}
	t.machine = gorgonia.NewTapeMachine(b.g)
	return t, nil
}

// gru unrolls the GRU over the rounds and returns the last state.
func (b *builder) gru(x gorgonia.Nodes, layers map[string]*gorgonia.Node) *gorgonia.Node {
	var h *gorgonia.Node // nil: zero
	for _, row := range x {
		gate := func(name string, h *gorgonia.Node) *gorgonia.Node {
			sum := b.times(row, layers["input."+name], true)
			if h == nil {
				return sum
			}
			return b.both(gorgonia.Add, sum, b.times(h, layers["state."+name], false))
		}
		z := b.one(gorgonia.Sigmoid, gate("z", h))
		if h == nil { // h' = n - z n
			n := b.one(gorgonia.Tanh, gate("n", nil))
			h = b.both(gorgonia.Sub, n, b.both(gorgonia.HadamardProd, z, n))
			continue
		}
		r := b.one(gorgonia.Sigmoid, gate("r", h))
		n := b.one(gorgonia.Tanh, gate("n", b.both(gorgonia.HadamardProd, r, h)))
		h = b.both(gorgonia.Add, n, b.both(gorgonia.HadamardProd, z, b.both(gorgonia.Sub, h, n)))
	}
	return h
}

// run computes the loss, the values and the gradient, which it writes flat like the weights.
func (t *graph) run(gradient []float32) (float64, error) {
	t.machine.Reset()
	if err := t.machine.RunAll(); err != nil {
		return 0, fmt.Errorf("recurrent: run graph: %w", err)
	}
	for _, g := range t.grads {
		gradient = gradient[copy(gradient, floats(g)):]
	}
	return float64(*t.loss.(*gorgonia.F32)), nil
}

func filled(n int, v float32) []float32 {
	all := make([]float32, n)
	for i := range all {
		all[i] = v
	}
	return all
}
