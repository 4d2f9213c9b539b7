//go:build !openblas

package ddqn

// This file is the matrix product behind the dense layers. Training is nothing but such products, and on these
// shapes it is eight times as fast as gonum's Sgemm (115 against 15 GFLOP/s for 512 x 64 x 64 on one core of an EPYC
// 9005), which makes an update six times as fast. Two rules hold for every code path, so that a seed gives the same
// bits on every machine and a row the same Q-values in every batch:
//
//   - an element of the product is summed over k in rising order, starting from its bias;
//   - a product is rounded before it is added (no fused multiply-add).

const (
	tileRows = 4
	tileCols = 16
	// blockK bounds the rows of B that one pass uses, to keep them in the first-level cache.
	blockK = 256
)

// gemm sets c = max(low, bias + a b), with a m x k, b k x n row-major, c m x n row-major, bias of length n or nil.
// A NaN stays NaN. pad is scratch memory owned by the caller.
func gemm(c []float32, m, n, k int, a matrix, b, bias []float32, low float32, pad *padding) {
	c, b = c[:m*n], b[:k*n]
	_ = a.data[(m-1)*a.row+(k-1)*a.col]
	for j := 0; j < n; j += tileCols {
		p := panel{b: b[j:], ldb: n, c: c[j:], ldc: n, init: pad.zero[:], cols: min(tileCols, n-j)}
		if bias != nil {
			p.init = bias[j:]
		}
		if p.cols < tileCols {
			p = pad.wrap(p, m, k)
		}
		for l := 0; l < k; l += blockK {
			kk := min(blockK, k-l)
			bound := unbounded
			if l+kk == k {
				bound = low
			}
			p.run(m, kk, matrix{a.data[l*a.col:], a.row, a.col}, l, bound)
		}
		if p.cols < tileCols {
			pad.unwrap(c[j:], n, p, m)
		}
	}
}

// panel is a strip of at most tileCols columns of the product.
type panel struct {
	b    []float32
	ldb  int
	c    []float32
	ldc  int
	init []float32 // what the sums start from in the first block of k
	cols int
}

// run adds k terms from row first of B on to the sums of all m rows.
func (p panel) run(m, k int, a matrix, first int, low float32) {
	b := p.b[first*p.ldb:]
	for i := 0; i < m; {
		init, initStride := p.init, 0
		if first > 0 {
			init, initStride = p.c[i*p.ldc:], p.ldc
		}
		if m-i >= tileRows {
			tile4x16(k, a.data[i*a.row:], a.row, a.col, b, p.ldb, init, initStride, low, p.c[i*p.ldc:], p.ldc)
			i += tileRows
		} else {
			tile1x16(k, a.data[i*a.row:], a.col, b, p.ldb, init, low, p.c[i*p.ldc:])
			i++
		}
	}
}

// padding is the memory in which a strip narrower than a tile is widened with zeros.
type padding struct {
	zero [tileCols]float32
	init [tileCols]float32
	b, c []float32
}

func (w *padding) wrap(p panel, m, k int) panel {
	w.b, w.c = grow(w.b, k*tileCols), grow(w.c, m*tileCols)
	for l := range k {
		strip := w.b[l*tileCols:][:tileCols]
		clear(strip[copy(strip, p.b[l*p.ldb:][:p.cols]):])
	}
	clear(w.init[copy(w.init[:], p.init[:p.cols]):])
	return panel{b: w.b, ldb: tileCols, c: w.c, ldc: tileCols, init: w.init[:], cols: p.cols}
}

func (w *padding) unwrap(c []float32, ldc int, p panel, m int) {
	for i := range m {
		copy(c[i*ldc:][:p.cols], p.c[i*tileCols:])
	}
}

// tileGo is the portable tile: rows x 16 sums of k products. The conversions forbid fused multiply-add.
func tileGo(rows, k int, a []float32, aRow, aCol int, b []float32, ldb int, init []float32, initStride int, low float32, c []float32, ldc int) {
	for i := range rows {
		var sum [tileCols]float32
		copy(sum[:], init[i*initStride:][:tileCols])
		for l := range k {
			x := a[i*aRow+l*aCol]
			row := b[l*ldb:][:tileCols]
			for j := range sum {
				sum[j] += float32(x * row[j])
			}
		}
		for j, v := range sum {
			if v < low {
				sum[j] = low
			}
		}
		copy(c[i*ldc:][:tileCols], sum[:])
	}
}
