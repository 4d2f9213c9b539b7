package layer

import (
	"runtime"
	"sync"

	"evenkeel/internal/matrix"
)

const (
	parallelTerms = 1 << 20 // multiplications for which a goroutine is worth it
	parallelRows  = 16      // and rows
)

var scratches = sync.Pool{New: func() any { return new(matrix.Scratch) }}

// multiply sets c = a b, by several goroutines where it is large. Each sums whole rows, so that the bits are the same on
// any number of processors.
func multiply(c, a, b matrix.Matrix) { split(c, a, b, matrix.Multiply) }

// multiplyAdd sets c = c + a b.
func multiplyAdd(c, a, b matrix.Matrix) { split(c, a, b, matrix.MultiplyAdd) }

type product func(c, a, b matrix.Matrix, s *matrix.Scratch)

func split(c, a, b matrix.Matrix, p product) {
	workers := min(runtime.GOMAXPROCS(0), c.Rows*c.Cols*a.Cols/parallelTerms, c.Rows/parallelRows)
	if workers < 2 {
		compute(c, a, b, p)
		return
	}
	var all sync.WaitGroup
	for k := range workers {
		from, to := k*c.Rows/workers, (k+1)*c.Rows/workers
		all.Go(func() { compute(rows(c, from, to), rows(a, from, to), b, p) })
	}
	all.Wait()
}

func compute(c, a, b matrix.Matrix, p product) {
	s := scratches.Get().(*matrix.Scratch)
	p(c, a, b, s)
	scratches.Put(s)
}

// rows is part of a matrix.
func rows(m matrix.Matrix, from, to int) matrix.Matrix {
	m.Data, m.Rows = m.Data[from*m.RowStep:], to-from
	return m
}

// addRows adds the vector to every row.
func addRows(c matrix.Matrix, v []float32) {
	for i := range c.Rows {
		row := c.Data[i*c.RowStep:][:c.Cols]
		for j, x := range v {
			row[j] += x
		}
	}
}

// sumRows sets v to the sum of the rows, from the first on.
func sumRows(v []float32, c matrix.Matrix) {
	clear(v)
	for i := range c.Rows {
		row := c.Data[i*c.RowStep:][:c.Cols]
		for j, x := range row {
			v[j] += x
		}
	}
}
