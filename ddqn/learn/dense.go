package learn

import (
	"math"

	"gorgonia.org/gorgonia"

	"github.com/evenkeel/evenkeel/internal/matrix"
)

// dense is relu(x W + b), or x W + b, as one operation. Inputs: x rows x in, W in x out, b out.
type dense struct {
	fused
	result
	rows, in, out int
	relu          bool
	// inner is false for the first layer, whose input needs no gradient.
	inner bool
	// gradW and gradB are where the gradients of W and b go, windows of the learner's flat gradient; nil in a
	// graph that is never differentiated, or to let the operation own them.
	gradW, gradB []float32
	scratch      matrix.Scratch
}

func newDense(rows, in, out int, relu, inner bool) *dense {
	name := "ddqn.linear"
	if relu {
		name = "ddqn.dense"
	}
	f := fusedMatrix(name, 3, rows, out)
	return &dense{fused: f, result: f.result(nil), rows: rows, in: in, out: out, relu: relu, inner: inner}
}

func (d *dense) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	d.run(floats(in[0]), floats(in[1]), floats(in[2]))
	return d.result.out, nil
}

func (d *dense) run(x, w, b []float32) {
	low := matrix.Unbounded
	if d.relu {
		low = 0
	}
	matrix.Affine(matrix.Of(d.buf, d.rows, d.out), matrix.Of(x, d.rows, d.in), matrix.Of(w, d.in, d.out), b, low, &d.scratch)
}

func (d *dense) DiffWRT(int) []bool { return []bool{d.inner, true, true} }

func (d *dense) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	var err error
	apply := func(op gorgonia.Op, children ...*gorgonia.Node) *gorgonia.Node {
		if err != nil {
			return nil
		}
		var n *gorgonia.Node
		n, err = gorgonia.ApplyOp(op, children...)
		return n
	}
	if d.relu {
		grad = apply(newReluGrad(d.rows, d.out), grad, out)
	}
	var dx *gorgonia.Node
	if d.inner {
		dx = apply(newDenseInputGrad(d.rows, d.in, d.out), grad, in[1])
	}
	dw := apply(newDenseWeightGrad(d.rows, d.in, d.out, d.gradW), in[0], grad)
	db := apply(newDenseBiasGrad(d.rows, d.out, d.gradB), grad)
	return gorgonia.Nodes{dx, dw, db}, err
}

// reluGrad passes the gradient where the output is not zero (it is never below).
type reluGrad struct {
	fused
	result
}

func newReluGrad(rows, out int) *reluGrad {
	f := fusedMatrix("ddqn.relu'", 2, rows, out)
	return &reluGrad{f, f.result(nil)}
}

func (r *reluGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	grad, out := floats(in[0]), floats(in[1])
	out, dst := out[:len(grad)], r.buf[:len(grad)]
	for i, g := range grad {
		// Without a branch, which would be mispredicted half of the time: all bits set where out is not zero.
		v := math.Float32bits(out[i]) << 1
		mask := uint32(int32(v|-v) >> 31)
		dst[i] = math.Float32frombits(math.Float32bits(g) & mask)
	}
	return r.out, nil
}

// denseInputGrad is dx = dy Wᵀ.
type denseInputGrad struct {
	fused
	result
	rows, in, width int
	scratch         matrix.Scratch
}

func newDenseInputGrad(rows, in, width int) *denseInputGrad {
	f := fusedMatrix("ddqn.dense'x", 2, rows, in)
	return &denseInputGrad{fused: f, result: f.result(nil), rows: rows, in: in, width: width}
}

func (d *denseInputGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	dy, w := matrix.Of(floats(in[0]), d.rows, d.width), matrix.Of(floats(in[1]), d.in, d.width)
	matrix.Multiply(matrix.Of(d.buf, d.rows, d.in), dy, w.T(), &d.scratch)
	return d.out, nil
}

// denseWeightGrad is dW = xᵀ dy.
type denseWeightGrad struct {
	fused
	result
	rows, in, width int
	scratch         matrix.Scratch
}

func newDenseWeightGrad(rows, in, width int, buf []float32) *denseWeightGrad {
	f := fusedMatrix("ddqn.dense'W", 2, in, width)
	return &denseWeightGrad{fused: f, result: f.result(buf), rows: rows, in: in, width: width}
}

func (d *denseWeightGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	x, dy := matrix.Of(floats(in[0]), d.rows, d.in), matrix.Of(floats(in[1]), d.rows, d.width)
	matrix.Multiply(matrix.Of(d.buf, d.in, d.width), x.T(), dy, &d.scratch)
	return d.out, nil
}

// denseBiasGrad sums dy over its rows: the product of a row of ones with it.
type denseBiasGrad struct {
	fused
	result
	rows, width int
	ones        []float32
	scratch     matrix.Scratch
}

func newDenseBiasGrad(rows, width int, buf []float32) *denseBiasGrad {
	f := fusedVector("ddqn.dense'b", 1, width)
	d := &denseBiasGrad{fused: f, result: f.result(buf), rows: rows, width: width, ones: make([]float32, rows)}
	for i := range d.ones {
		d.ones[i] = 1
	}
	return d
}

func (d *denseBiasGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	dy := matrix.Of(floats(in[0]), d.rows, d.width)
	matrix.Multiply(matrix.Of(d.buf, 1, d.width), matrix.Of(d.ones, 1, d.rows), dy, &d.scratch)
	return d.out, nil
}
