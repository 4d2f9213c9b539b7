//go:build !amd64

package matrix

func tile4x16(k int, a []float32, aRow, aCol int, b []float32, ldb int, init []float32, initStride int, low float32, c []float32, ldc int) {
	tileGo(tileRows, k, a, aRow, aCol, b, ldb, init, initStride, low, c, ldc)
}

func tile1x16(k int, a []float32, aCol int, b []float32, ldb int, init []float32, low float32, c []float32) {
	tileGo(1, k, a, 0, aCol, b, ldb, init, 0, low, c, 0)
}
