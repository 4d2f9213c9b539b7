package ddqn

import "math"

// matrix is a read-only view: element (i, l) is data[i*row+l*col].
type matrix struct {
	data     []float32
	row, col int
}

// rowMajor views a contiguous matrix with the given number of columns.
func rowMajor(data []float32, cols int) matrix { return matrix{data, cols, 1} }

// transposed views the transpose of a contiguous matrix with the given number of columns.
func transposed(data []float32, cols int) matrix { return matrix{data, 1, cols} }

// unbounded is the lower bound that leaves every sum as it is.
var unbounded = float32(math.Inf(-1))

// grow returns s with length n, reallocated if it must be; its content is not kept.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
