package learn

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"evenkeel/ddqn"
)

// building serialises the construction of graphs: Gorgonia keeps package-level state there, not when running.
var building sync.Mutex

// trainer is the graph of the loss and its gradient for a fixed number of rows, built once.
type trainer struct {
	gradient []float32 // of the loss by the weights, flat like those
	chosen   []float32 // Q of the actions taken, rows x objectives
	loss     *gorgonia.F32
	machine  gorgonia.VM
}

// newTrainer builds the graph over the weights of net and over the buffers of b and y, which later runs read.
func newTrainer(net *ddqn.Network, b *batch, y []float32, cfg Config) (*trainer, error) {
	building.Lock()
	defer building.Unlock()
	spec, rows := net.Spec(), cfg.Batch*cfg.Group
	t := &trainer{gradient: make([]float32, len(net.Weights()))}
	layers, grads := spec.Layers(net.Weights()), spec.Layers(t.gradient)
	head := len(layers) - 1

	g := gorgonia.NewGraph()
	var weights gorgonia.Nodes
	var err error
	apply := func(o *op, in ...*gorgonia.Node) (n *gorgonia.Node) {
		if err == nil {
			if n, err = gorgonia.ApplyOp(o, in...); err != nil {
				err = fmt.Errorf("ddqn/learn: build %s: %w", o.name, err)
			}
		}
		return n
	}
	parameters := func(name string, l ddqn.Layer) (w, b *gorgonia.Node) {
		w, b = input(g, name+".weight", l.W, l.In, l.Out), input(g, name+".bias", l.B, l.Out)
		weights = append(weights, w, b)
		return w, b
	}
	h := input(g, "x", b.x, rows, spec.Features)
	for i, l := range layers[:head] {
		w, bias := parameters(fmt.Sprintf("hidden.%d", i), l)
		h = apply(newDense(rows, grads[i], true, i > 0), h, w, bias)
	}
	// The dueling head: its weights are folded into a linear layer, which is applied.
	w, bias := parameters("head", layers[head])
	w = apply(newDuel(layers[head].In, spec.Actions, spec.Objectives, grads[head].W), w)
	bias = apply(newDuel(0, spec.Actions, spec.Objectives, grads[head].B), bias)
	q := apply(newDense(rows, ddqn.Layer{In: layers[head].In, Out: spec.Actions * spec.Objectives}, false, head > 0), h, w, bias)

	actions := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("actions"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(rows), tensor.WithBacking(b.actions))))
	pick := newChosen(rows, spec.Actions, spec.Objectives)
	taken := apply(pick, q, actions)
	loss, value := newHuber(rows, spec.Objectives)
	cost := apply(loss, taken, input(g, "y", y, rows, spec.Objectives), input(g, "live", b.live, rows))
	if err != nil {
		return nil, err
	}
	// The gradients land in t.gradient, which the operations were given as their output buffers.
	if _, err = gorgonia.Grad(cost, weights...); err != nil {
		return nil, fmt.Errorf("ddqn/learn: differentiate: %w", err)
	}
	t.chosen, t.loss = pick.buf, value
	t.machine = gorgonia.NewTapeMachine(g)
	return t, nil
}

// run computes the loss and leaves its gradient in t.gradient.
func (t *trainer) run() (float64, error) {
	t.machine.Reset()
	if err := t.machine.RunAll(); err != nil {
		return 0, fmt.Errorf("run training graph: %w", err)
	}
	return float64(*t.loss), nil
}

// input is a node over a slice, which the caller goes on writing to.
func input(g *gorgonia.ExprGraph, name string, data []float32, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...),
		gorgonia.WithName(name), gorgonia.WithValue(wrap(data, shape...)))
}
