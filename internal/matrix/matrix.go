// Package matrix multiplies float32 matrices, for the dense layers of ddqn and the layers of train.
//
// Two rules hold for every code path, so that a seed gives the same bits on every machine, in every build and however
// the rows of a product are split:
//
//   - a number of the product is summed over k in rising order, from what it starts with (zero, a bias, itself);
//   - a product is rounded before it is added (no fused multiply-add).
package matrix

import "math"

// Matrix is a view of Rows x Cols numbers: number (i, j) is Data[i*RowStep+j*ColStep].
type Matrix struct {
	Data             []float32
	Rows, Cols       int
	RowStep, ColStep int
}

// Of views contiguous numbers, row by row.
func Of(data []float32, rows, cols int) Matrix { return Matrix{data, rows, cols, cols, 1} }

// T is the transpose, a view of the same numbers.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Cols, m.Rows, m.ColStep, m.RowStep} }

// Unbounded is the lower bound that leaves every sum as it is.
var Unbounded = float32(math.Inf(-1))

// Multiply sets c = a b. The rows of c must be contiguous; a and b may be transposes. A NaN stays NaN.
func Multiply(c, a, b Matrix, s *Scratch) { product(c, a, b, start{}, Unbounded, s) }

// MultiplyAdd sets c = c + a b.
func MultiplyAdd(c, a, b Matrix, s *Scratch) {
	product(c, a, b, start{c.Data, c.RowStep}, Unbounded, s)
}

// Affine sets c = max(low, bias + a b); bias has a number for each column.
func Affine(c, a, b Matrix, bias []float32, low float32, s *Scratch) {
	product(c, a, b, start{bias[:c.Cols], 0}, low, s)
}

// start is what the sums begin with: number j of row i is data[i*step+j]; zeros where data is nil.
type start struct {
	data []float32
	step int
}

// check panics where the sizes do not fit, and touches the last number of each operand.
func check(c, a, b Matrix) {
	if a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows || c.ColStep != 1 || a.Cols < 1 {
		panic("matrix: sizes of a product do not fit")
	}
	_ = c.Data[(c.Rows-1)*c.RowStep+c.Cols-1]
	_ = a.Data[(a.Rows-1)*a.RowStep+(a.Cols-1)*a.ColStep]
	_ = b.Data[(b.Rows-1)*b.RowStep+(b.Cols-1)*b.ColStep]
}
