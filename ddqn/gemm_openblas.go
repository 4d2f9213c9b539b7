//go:build openblas && cgo

package ddqn

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

// padding is scratch memory that OpenBLAS does not need.
type padding struct{}

// gemm is that of gemm.go except for the order of the sums and their rounding, which are the library's: they may differ
// between processors, releases of OpenBLAS and numbers of rows. Of views it takes those of rowMajor and transposed.
func gemm(c []float32, m, n, k int, a matrix, b, bias []float32, low float32, _ *padding) {
	c, b = c[:m*n], b[:k*n]
	_ = a.data[(m-1)*a.row+(k-1)*a.col]
	var beta C.float
	if bias != nil {
		beta = 1
		for i := 0; i < m*n; i += n {
			copy(c[i:], bias[:n])
		}
	}
	order, stride := uint32(C.CblasNoTrans), max(a.row, k) // a.row is 1 in the transpose of a column
	if a.col != 1 {
		order, stride = C.CblasTrans, a.col
	}
	C.cblas_sgemm(C.CblasRowMajor, order, C.CblasNoTrans, C.blasint(m), C.blasint(n), C.blasint(k),
		1, (*C.float)(&a.data[0]), C.blasint(stride), (*C.float)(&b[0]), C.blasint(n), beta, (*C.float)(&c[0]), C.blasint(n))
	if low > unbounded {
		C.clip((*C.float)(&c[0]), C.int(len(c)), C.float(low))
	}
}
