package matrix

// On the shapes of ddqn and train this is six to eight times as fast as gonum's Sgemm on one core with AVX, see
// BenchmarkMultiply, whose plain twin is gonum.

const (
	tileRows = 4
	tileCols = 16
	// blockK bounds the rows of b that one pass uses, to keep them in the first-level cache.
	blockK = 256
)

// Scratch is memory that a product works in; the zero value is ready. It serves one goroutine at a time.
type Scratch struct {
	zero  [tileCols]float32
	first [tileCols]float32
	strip [blockK * tileCols]float32
	sums  []float32
}

func product(c, a, b Matrix, from start, low float32, s *Scratch) {
	if c.Rows == 0 || c.Cols == 0 {
		return
	}
	check(c, a, b)
	for j := 0; j < c.Cols; j += tileCols {
		cols := min(tileCols, c.Cols-j)
		sums, begin := Matrix{Data: c.Data[j:], Rows: c.Rows, RowStep: c.RowStep}, start{s.zero[:], 0}
		if from.data != nil {
			begin = start{from.data[j:], from.step}
		}
		if cols < tileCols {
			sums, begin = s.widen(begin, c.Rows, cols)
		}
		for l := 0; l < a.Cols; l += blockK {
			k := min(blockK, a.Cols-l)
			bound := Unbounded
			if l+k == a.Cols {
				bound = low
			}
			strip := Matrix{Data: b.Data[l*b.RowStep+j*b.ColStep:], Rows: k, Cols: cols, RowStep: b.RowStep, ColStep: b.ColStep}
			if cols < tileCols || b.ColStep != 1 {
				strip = s.pack(strip)
			}
			panel(sums, a, l, strip, begin, bound)
			begin = start{sums.Data, sums.RowStep}
		}
		if cols < tileCols {
			for i := range c.Rows {
				copy(c.Data[i*c.RowStep+j:][:cols], sums.Data[i*tileCols:])
			}
		}
	}
}

// panel adds the terms of a strip of b, which meets the columns of a from one on, to the sums of tileCols columns.
func panel(sums, a Matrix, column int, strip Matrix, from start, low float32) {
	for i := 0; i < sums.Rows; {
		row, first, out := a.Data[i*a.RowStep+column*a.ColStep:], from.data[i*from.step:], sums.Data[i*sums.RowStep:]
		if sums.Rows-i >= tileRows {
			tile4x16(strip.Rows, row, a.RowStep, a.ColStep, strip.Data, strip.RowStep, first, from.step, low, out, sums.RowStep)
			i += tileRows
		} else {
			tile1x16(strip.Rows, row, a.ColStep, strip.Data, strip.RowStep, first, low, out)
			i++
		}
	}
}

// widen gives memory for the sums of a strip that is narrower than a tile, and what they start from.
func (s *Scratch) widen(from start, rows, cols int) (Matrix, start) {
	s.sums = grow(s.sums, rows*tileCols)
	sums := Of(s.sums, rows, tileCols)
	if from.step == 0 {
		clear(s.first[copy(s.first[:], from.data[:cols]):])
		return sums, start{s.first[:], 0}
	}
	for i := range rows {
		row := s.sums[i*tileCols:][:tileCols]
		clear(row[copy(row, from.data[i*from.step:][:cols]):])
	}
	return sums, start{s.sums, tileCols}
}

// pack copies a strip of at most blockK rows so that its rows are contiguous and tileCols wide.
func (s *Scratch) pack(b Matrix) Matrix {
	strip := s.strip[:b.Rows*tileCols]
	if b.ColStep == 1 {
		for l := range b.Rows {
			row := strip[l*tileCols:][:tileCols]
			clear(row[copy(row, b.Data[l*b.RowStep:][:b.Cols]):])
		}
		return Of(strip, b.Rows, tileCols)
	}
	if b.Cols < tileCols {
		clear(strip)
	}
	j := 0
	for ; b.RowStep == 1 && j+4 <= b.Cols; j += 4 { // four columns of a transpose at a time
		at := b.Data[j*b.ColStep:]
		w, x, y, z := at[:b.Rows], at[b.ColStep:][:b.Rows], at[2*b.ColStep:][:b.Rows], at[3*b.ColStep:][:b.Rows]
		out := strip[j:]
		for l := range w {
			to := (*[4]float32)(out[l*tileCols:])
			to[0], to[1], to[2], to[3] = w[l], x[l], y[l], z[l]
		}
	}
	for ; j < b.Cols; j++ {
		for l := range b.Rows {
			strip[l*tileCols+j] = b.Data[l*b.RowStep+j*b.ColStep]
		}
	}
	return Of(strip, b.Rows, tileCols)
}

// grow returns s with length n, reallocated if it must be; its content is not kept.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
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
