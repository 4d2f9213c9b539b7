package train

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// matrix is rows x cols elements, row i beginning at data[i*stride].
type matrix struct {
	data               []float32
	rows, cols, stride int
}

func dense(data []float32, rows, cols int) matrix { return matrix{data, rows, cols, cols} }

const (
	no  = blas.NoTrans
	yes = blas.Trans
)

// multiply sets c = alpha op(a) op(b) + beta c. Gonum sums every element of c in an order that follows from the sizes
// alone, so the bits are the same on any number of processors.
func multiply(ta blas.Transpose, a matrix, tb blas.Transpose, b matrix, c matrix, alpha, beta float32) {
	k := a.cols
	if ta == yes {
		k = a.rows
	}
	gonum.Implementation{}.Sgemm(ta, tb, c.rows, c.cols, k, alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride)
}

// addRows adds the vector to every row.
func addRows(c matrix, v []float32) {
	for i := range c.rows {
		row := c.data[i*c.stride:][:c.cols]
		for j, x := range v {
			row[j] += x
		}
	}
}

// sumRows sets v to the sum of the rows, from the first on.
func sumRows(v []float32, c matrix) {
	clear(v)
	for i := range c.rows {
		row := c.data[i*c.stride:][:c.cols]
		for j, x := range row {
			v[j] += x
		}
	}
}
