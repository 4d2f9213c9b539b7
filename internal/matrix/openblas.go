//go:build openblas && cgo

package matrix

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -lopenblas
// #include <cblas.h>
//
// // In C because its compiler makes vector instructions of this loop, and Go's does not. A NaN stays.
// static void clip(float *c, int n, float low) {
// 	for (int i = 0; i < n; i++) c[i] = c[i] < low ? low : c[i];
// }
import "C"

// One thread, so that the sums do not depend on the number of cores. It holds for the whole process.
func init() { C.openblas_set_num_threads(1) }

// Scratch is memory that OpenBLAS does not need.
type Scratch struct{}

// product is that of product.go except for the order of the sums and their rounding, which are the library's: they may
// differ between processors, releases of OpenBLAS and numbers of rows.
func product(c, a, b Matrix, from start, low float32, _ *Scratch) {
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	check(c, a, b)
	var beta C.float
	if from.data != nil {
		beta = 1
		if from.step == 0 {
			for i := range c.Rows {
				copy(c.Data[i*c.RowStep:], from.data[:c.Cols])
			}
		}
	}
	orderA, strideA := layout(a)
	orderB, strideB := layout(b)
	C.cblas_sgemm(C.CblasRowMajor, orderA, orderB, C.blasint(c.Rows), C.blasint(c.Cols), C.blasint(a.Cols),
		1, (*C.float)(&a.Data[0]), strideA, (*C.float)(&b.Data[0]), strideB, beta, (*C.float)(&c.Data[0]), C.blasint(max(c.RowStep, c.Cols)))
	if low > Unbounded {
		for i := range c.Rows {
			C.clip((*C.float)(&c.Data[i*c.RowStep]), C.int(c.Cols), C.float(low))
		}
	}
}

// layout describes a view, one of whose steps is 1, in the library's terms.
func layout(m Matrix) (order uint32, stride C.blasint) {
	if m.ColStep == 1 {
		return C.CblasNoTrans, C.blasint(max(m.RowStep, m.Cols)) // a row of a transposed column has step 1
	}
	if m.RowStep != 1 {
		panic("matrix: neither rows nor columns are contiguous")
	}
	return C.CblasTrans, C.blasint(max(m.ColStep, m.Rows))
}
