package layer

import (
	"cmp"
	"math"

	"evenkeel/internal/matrix"
)

// Dense is x W + b, on each position of a sample: x positions x in, W in x out.
type Dense struct {
	Positions, In, Out int
	Std                float64 // of the initial weights; 0: sqrt(2 / In) (He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", 2015)
}

// Params are weight and bias.
func (d Dense) Params() []Param {
	return []Param{{Name: "weight", Shape: []int{d.In, d.Out}, Std: cmp.Or(d.Std, math.Sqrt(2/float64(d.In)))}, {Name: "bias", Shape: []int{d.Out}}}
}

// Sizes is Layer's.
func (d Dense) Sizes() (in, out int) { return d.Positions * d.In, d.Positions * d.Out }

// Memory is Layer's.
func (Dense) Memory(int) (kept, scratch int) { return 0, 0 }

// Forward is Layer's.
func (d Dense) Forward(w *Call) {
	rows := w.N * d.Positions
	y := matrix.Of(w.Y, rows, d.Out)
	multiply(y, matrix.Of(w.X, rows, d.In), matrix.Of(w.W[0], d.In, d.Out))
	addRows(y, w.W[1])
}

// Backward is Layer's.
func (d Dense) Backward(w *Call) {
	rows := w.N * d.Positions
	dy := matrix.Of(w.DY, rows, d.Out)
	multiply(matrix.Of(w.DW[0], d.In, d.Out), matrix.Of(w.X, rows, d.In).T(), dy)
	sumRows(w.DW[1], dy)
	if w.DX != nil {
		multiply(matrix.Of(w.DX, rows, d.In), dy, matrix.Of(w.W[0], d.In, d.Out).T())
	}
}
