package learn

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"evenkeel/ddqn"
	"evenkeel/ddqn/internal/dueling"
	"evenkeel/internal/matrix"
)

// newDense is relu(x W + b), or x W + b, for rows inputs of a layer with grad.In inputs and grad.Out outputs. Inputs:
// x rows x in, W in x out, b out. The gradients of W and b go to grad, or to new buffers where its slices are nil. inner
// is false for the first layer, whose input needs no gradient.
func newDense(rows int, grad ddqn.Layer, relu, inner bool) *op {
	name, low := "ddqn.linear", matrix.Unbounded
	if relu {
		name, low = "ddqn.dense", 0
	}
	o := newOp(name, 3, nil, rows, grad.Out)
	var scratch matrix.Scratch
	o.run = func(in []gorgonia.Value) error {
		x, w := matrix.Of(floats(in[0]), rows, grad.In), matrix.Of(floats(in[1]), grad.In, grad.Out)
		matrix.Affine(matrix.Of(o.buf, rows, grad.Out), x, w, floats(in[2]), low, &scratch)
		return nil
	}
	o.wrt = []bool{inner, true, true}
	o.back = func(in gorgonia.Nodes, out, dy *gorgonia.Node) (_ gorgonia.Nodes, err error) {
		apply := func(op *op, children ...*gorgonia.Node) (n *gorgonia.Node) {
			if err == nil {
				n, err = gorgonia.ApplyOp(op, children...)
			}
			return n
		}
		if relu {
			dy = apply(newReluGrad(rows, grad.Out), dy, out)
		}
		var dx *gorgonia.Node
		if inner {
			dx = apply(newProduct("ddqn.dense'x", nil, rows, grad.In, func(in []gorgonia.Value) (dy, wT matrix.Matrix) {
				return matrix.Of(floats(in[0]), rows, grad.Out), matrix.Of(floats(in[1]), grad.In, grad.Out).T()
			}), dy, in[1])
		}
		dw := apply(newProduct("ddqn.dense'W", grad.W, grad.In, grad.Out, func(in []gorgonia.Value) (xT, dy matrix.Matrix) {
			return matrix.Of(floats(in[0]), rows, grad.In).T(), matrix.Of(floats(in[1]), rows, grad.Out)
		}), in[0], dy)
		db := apply(newBiasGrad(rows, grad.Out, grad.B), dy)
		return gorgonia.Nodes{dx, dw, db}, err
	}
	return o
}

// newReluGrad passes the gradient where the output is not zero; it is not negative. Inputs: gradient and output.
func newReluGrad(rows, width int) *op {
	o := newOp("ddqn.relu'", 2, nil, rows, width)
	o.run = func(in []gorgonia.Value) error {
		grad, out := floats(in[0]), floats(in[1])
		out, dst := out[:len(grad)], o.buf[:len(grad)]
		for i, g := range grad {
			// Without a branch, which would be mispredicted half of the time: all bits set where out is not zero.
			v := math.Float32bits(out[i]) << 1
			mask := uint32(int32(v|-v) >> 31)
			dst[i] = math.Float32frombits(math.Float32bits(g) & mask)
		}
		return nil
	}
	return o
}

// newProduct is the matrix product of two factors, which the function takes from the inputs.
func newProduct(name string, buf []float32, rows, cols int, factors func(in []gorgonia.Value) (a, b matrix.Matrix)) *op {
	o := newOp(name, 2, buf, rows, cols)
	var scratch matrix.Scratch
	o.run = func(in []gorgonia.Value) error {
		a, b := factors(in)
		matrix.Multiply(matrix.Of(o.buf, rows, cols), a, b, &scratch)
		return nil
	}
	return o
}

// newBiasGrad sums the gradient of a layer's output over its rows: the product of a row of ones with it.
func newBiasGrad(rows, width int, buf []float32) *op {
	o := newOp("ddqn.dense'b", 1, buf, width)
	ones := slices.Repeat([]float32{1}, rows)
	var scratch matrix.Scratch
	o.run = func(in []gorgonia.Value) error {
		dy := matrix.Of(floats(in[0]), rows, width)
		matrix.Multiply(matrix.Of(o.buf, 1, width), matrix.Of(ones, 1, rows), dy, &scratch)
		return nil
	}
	return o
}

// newDuel is dueling.Fold as an operation on a matrix of that many rows (the weights), or on a vector where rows is 0
// (the bias). Its gradient goes to grad, or to a new buffer where grad is nil.
func newDuel(rows, actions, objectives int, grad []float32) *op {
	shape := func(width int) []int {
		if rows == 0 {
			return []int{width}
		}
		return []int{rows, width}
	}
	o := newOp("ddqn.dueling", 1, nil, shape(actions*objectives)...)
	o.run = func(in []gorgonia.Value) error {
		dueling.Fold(o.buf, floats(in[0]), actions, objectives)
		return nil
	}
	o.wrt = []bool{true}
	o.back = func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("ddqn.dueling'", 1, grad, shape(objectives*(1+actions))...)
		d.run = func(in []gorgonia.Value) error {
			dueling.Gradient(d.buf, floats(in[0]), actions, objectives)
			return nil
		}
		n, err := gorgonia.ApplyOp(d, dy)
		return gorgonia.Nodes{n}, err
	}
	return o
}

// newChosen picks the Q-values of the action that each row took. Inputs: Q rows x actions*objectives, actions rows
// (int). Result: rows x objectives. It does the work of the usual one-hot product without the zeros.
func newChosen(rows, actions, objectives int) *op {
	o := newOp("ddqn.chosen", 2, nil, rows, objectives)
	o.run = func(in []gorgonia.Value) error {
		q := floats(in[0])
		for i, a := range in[1].(*tensor.Dense).Ints() {
			if a < 0 || a >= actions {
				return fmt.Errorf("ddqn/learn: action %d in row %d, must be between 0 and %d", a, i, actions-1)
			}
			copy(o.buf[i*objectives:][:objectives], q[(i*actions+a)*objectives:])
		}
		return nil
	}
	o.wrt = []bool{true, false}
	o.back = func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("ddqn.chosen'", 2, nil, rows, actions*objectives)
		d.run = func(in []gorgonia.Value) error { // the gradient goes to the chosen action, zero to the others
			grad := floats(in[0])
			clear(d.buf)
			for i, a := range in[1].(*tensor.Dense).Ints() {
				copy(d.buf[(i*actions+a)*objectives:][:objectives], grad[i*objectives:])
			}
			return nil
		}
		dq, err := gorgonia.ApplyOp(d, dy, in[1])
		return gorgonia.Nodes{dq, nil}, err
	}
	return o
}
