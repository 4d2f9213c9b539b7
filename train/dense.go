package train

import "math"

// Dense is x W + b, on each position of a sample: x positions x in, W in x out.
type Dense struct {
	Positions, In, Out int
	Std                float64 // of the initial weights; 0: sqrt(2 / In) (He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", 2015)
}

// Params are weight and bias.
func (d Dense) Params() []Param {
	return []Param{{Name: "weight", Shape: []int{d.In, d.Out}, Std: or(d.Std, math.Sqrt(2/float64(d.In)))}, {Name: "bias", Shape: []int{d.Out}}}
}

// Sizes is Layer's.
func (d Dense) Sizes() (in, out int) { return d.Positions * d.In, d.Positions * d.Out }

// Memory is Layer's.
func (Dense) Memory(int) (kept, scratch int) { return 0, 0 }

// Forward is Layer's.
func (d Dense) Forward(w *Work) {
	rows := w.N * d.Positions
	y := dense(w.Y, rows, d.Out)
	multiply(no, dense(w.X, rows, d.In), no, dense(w.W[0], d.In, d.Out), y, 1, 0)
	addRows(y, w.W[1])
}

// Backward is Layer's.
func (d Dense) Backward(w *Work) {
	rows := w.N * d.Positions
	dy := dense(w.DY, rows, d.Out)
	multiply(yes, dense(w.X, rows, d.In), no, dy, dense(w.DW[0], d.In, d.Out), 1, 0)
	sumRows(w.DW[1], dy)
	if w.DX != nil {
		multiply(no, dy, yes, dense(w.W[0], d.In, d.Out), dense(w.DX, rows, d.In), 1, 0)
	}
}
