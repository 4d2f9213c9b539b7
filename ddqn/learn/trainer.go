package learn

import (
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/evenkeel/evenkeel/ddqn"
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
	h := input(g, "x", b.x, rows, spec.Features)
	for i, l := range layers[:head] {
		op := newDense(rows, l.In, l.Out, true, i > 0)
		op.gradW, op.gradB = grads[i].W, grads[i].B
		var wb gorgonia.Nodes
		var err error
		if h, wb, err = applyDense(g, fmt.Sprintf("hidden.%d", i), h, l, op); err != nil {
			return nil, err
		}
		weights = append(weights, wb...)
	}
	q, wb, err := applyHead(g, h, layers[head], grads[head], spec, rows, len(spec.Hidden) > 0)
	if err != nil {
		return nil, err
	}
	weights = append(weights, wb...)

	actions := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("actions"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(rows), tensor.WithBacking(b.actions))))
	pick := newChosen(rows, spec.Actions, spec.Objectives)
	taken, err := gorgonia.ApplyOp(pick, q, actions)
	if err != nil {
		return nil, fmt.Errorf("ddqn/learn: build chosen Q: %w", err)
	}
	hub := newHuber(lossShape{cfg.Batch, cfg.Group, spec.Objectives, cfg.Pooled, float32(cfg.HuberDelta)})
	cost, err := gorgonia.ApplyOp(hub, taken, input(g, "y", y, rows, spec.Objectives), input(g, "live", b.live, rows))
	if err != nil {
		return nil, fmt.Errorf("ddqn/learn: build loss: %w", err)
	}
	// The gradients land in t.gradient, which the operations were given as their output buffers.
	if _, err = gorgonia.Grad(cost, weights...); err != nil {
		return nil, fmt.Errorf("ddqn/learn: differentiate: %w", err)
	}
	t.chosen, t.loss = pick.buf, hub.value
	t.machine = gorgonia.NewTapeMachine(g)
	return t, nil
}

// applyHead adds the dueling head: its weights folded into a linear layer, and that applied.
func applyHead(g *gorgonia.ExprGraph, h *gorgonia.Node, l, grad ddqn.Layer, spec ddqn.Spec, rows int, inner bool) (*gorgonia.Node, gorgonia.Nodes, error) {
	w := input(g, "head.weight", l.W, l.In, l.Out)
	b := input(g, "head.bias", l.B, l.Out)
	foldedW, err := gorgonia.ApplyOp(newDuel(l.In, spec.Actions, spec.Objectives, grad.W), w)
	if err != nil {
		return nil, nil, fmt.Errorf("ddqn/learn: build dueling weights: %w", err)
	}
	foldedB, err := gorgonia.ApplyOp(newDuel(0, spec.Actions, spec.Objectives, grad.B), b)
	if err != nil {
		return nil, nil, fmt.Errorf("ddqn/learn: build dueling bias: %w", err)
	}
	q, err := gorgonia.ApplyOp(newDense(rows, l.In, spec.Actions*spec.Objectives, false, inner), h, foldedW, foldedB)
	if err != nil {
		return nil, nil, fmt.Errorf("ddqn/learn: build head: %w", err)
	}
	return q, gorgonia.Nodes{w, b}, nil
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

// applyDense adds a dense layer over the weights of l, and returns its output and its two weight nodes.
func applyDense(g *gorgonia.ExprGraph, name string, x *gorgonia.Node, l ddqn.Layer, op *dense) (*gorgonia.Node, gorgonia.Nodes, error) {
	w := input(g, name+".weight", l.W, l.In, l.Out)
	b := input(g, name+".bias", l.B, l.Out)
	y, err := gorgonia.ApplyOp(op, x, w, b)
	if err != nil {
		return nil, nil, fmt.Errorf("ddqn/learn: build layer %s: %w", name, err)
	}
	return y, gorgonia.Nodes{w, b}, nil
}
