package matrix

import "golang.org/x/sys/cpu"

// hasAVX is a variable so that the tests can compare both paths.
var hasAVX = cpu.X86.HasAVX

//go:noescape
func tile4x16AVX(k int, a *float32, aRow, aCol int, b *float32, ldb int, init *float32, initStride int, low float32, c *float32, ldc int)

//go:noescape
func tile1x16AVX(k int, a *float32, aCol int, b *float32, ldb int, init *float32, low float32, c *float32)

// tile4x16 computes four rows of a panel. Strides are in elements.
func tile4x16(k int, a []float32, aRow, aCol int, b []float32, ldb int, init []float32, initStride int, low float32, c []float32, ldc int) {
	if !hasAVX {
		tileGo(tileRows, k, a, aRow, aCol, b, ldb, init, initStride, low, c, ldc)
		return
	}
	// The assembly does not check bounds: the last element of each operand is touched here.
	_, _ = a[(tileRows-1)*aRow+(k-1)*aCol], b[(k-1)*ldb+tileCols-1]
	_, _ = init[(tileRows-1)*initStride+tileCols-1], c[(tileRows-1)*ldc+tileCols-1]
	tile4x16AVX(k, &a[0], 4*aRow, 4*aCol, &b[0], 4*ldb, &init[0], 4*initStride, low, &c[0], 4*ldc)
}

// tile1x16 computes one row of a panel.
func tile1x16(k int, a []float32, aCol int, b []float32, ldb int, init []float32, low float32, c []float32) {
	if !hasAVX {
		tileGo(1, k, a, 0, aCol, b, ldb, init, 0, low, c, 0)
		return
	}
	_, _ = a[(k-1)*aCol], b[(k-1)*ldb+tileCols-1]
	_, _ = init[tileCols-1], c[tileCols-1]
	tile1x16AVX(k, &a[0], 4*aCol, &b[0], 4*ldb, &init[0], low, &c[0])
}
