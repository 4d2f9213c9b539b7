package matrix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"pgregory.net/rapid"
)

// naive is the obviously right twin, with the order of additions that the package promises.
func naive(c, a, b Matrix, from start, low float32) {
	for i := range c.Rows {
		for j := range c.Cols {
			var sum float32
			if from.data != nil {
				sum = from.data[i*from.step+j]
			}
			for l := range a.Cols {
				sum += float32(a.Data[i*a.RowStep+l*a.ColStep] * b.Data[l*b.RowStep+j*b.ColStep])
			}
			if sum < low {
				sum = low
			}
			c.Data[i*c.RowStep+j] = sum
		}
	}
}

func random(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

// view draws a matrix: contiguous, part of a wider one, or the transpose of either.
func view(t *rapid.T, name string, rng *rand.Rand, rows, cols int, transpose bool) Matrix {
	if transpose && rapid.Bool().Draw(t, name+" transposed") {
		return view(t, name, rng, cols, rows, false).T()
	}
	step := cols + rapid.SampledFrom([]int{0, 1, 7}).Draw(t, name+" beside")
	return Matrix{random(rng, rows*step), rows, cols, step, 1}
}

func TestProductEqualsNaive(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m, n := rapid.IntRange(1, 21).Draw(t, "m"), rapid.IntRange(1, 50).Draw(t, "n")
			k := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(longK-2, longK+2)).Draw(t, "k")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			a, b, c := view(t, "a", rng, m, k, true), view(t, "b", rng, k, n, true), view(t, "c", rng, m, n, false)
			if rapid.Bool().Draw(t, "odd values") {
				b.Data[rng.IntN(len(b.Data))] = float32(math.NaN())
				a.Data[rng.IntN(len(a.Data))] = float32(math.Inf(1))
			}
			bias, low := random(rng, n), rapid.SampledFrom([]float32{0, Unbounded}).Draw(t, "low")
			kind := rapid.SampledFrom([]string{"multiply", "add", "affine"}).Draw(t, "kind")
			got, want := c, c
			var s Scratch
			for range 2 { // the second time with used scratch memory
				got.Data, want.Data = append([]float32(nil), c.Data...), append([]float32(nil), c.Data...)
				switch kind {
				case "multiply":
					Multiply(got, a, b, &s)
					naive(want, a, b, start{}, Unbounded)
				case "add":
					MultiplyAdd(got, a, b, &s)
					naive(want, a, b, start{want.Data, want.RowStep}, Unbounded)
				default:
					Affine(got, a, b, bias, low, &s)
					naive(want, a, b, start{bias, 0}, low)
				}
			}
			if i := wrongProduct(got.Data, want.Data); i >= 0 {
				t.Fatalf("element %d is %v, want %v", i, got.Data[i], want.Data[i])
			}
		})
	})
}

func TestNoRows(t *testing.T) {
	var s Scratch
	Multiply(Of(nil, 0, 3), Of(nil, 0, 2), Of(make([]float32, 6), 2, 3), &s)
}

func TestSizesThatDoNotFit(t *testing.T) {
	m := func(rows, cols int) Matrix { return Of(make([]float32, rows*cols), rows, cols) }
	short := m(2, 2)
	short.Data = short.Data[:3]
	for name, o := range map[string][3]Matrix{
		"rows": {m(2, 2), m(3, 2), m(2, 2)}, "columns": {m(2, 2), m(2, 2), m(2, 3)}, "terms": {m(2, 2), m(2, 3), m(2, 2)},
		"no terms": {m(2, 2), m(2, 0), m(0, 2)}, "result transposed": {m(2, 2).T(), m(2, 2), m(2, 2)},
		"short result": {short, m(2, 2), m(2, 2)}, "short a": {m(2, 2), short, m(2, 2)}, "short b": {m(2, 2), m(2, 2), short},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			var s Scratch
			Multiply(o[0], o[1], o[2], &s)
		}()
	}
}

// The times of this package's products, and as their plain twin those of gonum's. "forward" is c = a b, "inputs" the
// gradient of the inputs, c = a bᵀ, "weights" that of the weights, c = aᵀ b.
func BenchmarkMultiply(b *testing.B) {
	for _, size := range [][3]int{{512, 64, 64}, {64, 512, 512}, {64, 10, 512}, {16, 64, 256}, {64, 64, 16}} {
		m, n, k := size[0], size[1], size[2]
		rng := rand.New(rand.NewPCG(1, 1))
		x, y := random(rng, m*k), random(rng, k*n)
		c := Of(make([]float32, m*n), m, n)
		for _, p := range []struct {
			name   string
			a, b   Matrix
			ta, tb blas.Transpose
		}{
			{"forward", Of(x, m, k), Of(y, k, n), blas.NoTrans, blas.NoTrans},
			{"inputs", Of(x, m, k), Of(y, n, k).T(), blas.NoTrans, blas.Trans},
			{"weights", Of(x, k, m).T(), Of(y, k, n), blas.Trans, blas.NoTrans},
		} {
			speed := func(b *testing.B) {
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			}
			name := fmt.Sprintf("%s/%dx%dx%d/", p.name, m, n, k)
			b.Run(name+"ours", func(b *testing.B) {
				var s Scratch
				for b.Loop() {
					Multiply(c, p.a, p.b, &s)
				}
				speed(b)
			})
			b.Run(name+"gonum", func(b *testing.B) {
				for b.Loop() {
					gonum.Implementation{}.Sgemm(p.ta, p.tb, m, n, k, 1, p.a.Data, max(p.a.RowStep, p.a.ColStep), p.b.Data, max(p.b.RowStep, p.b.ColStep), 0, c.Data, n)
				}
				speed(b)
			})
		}
	}
}
