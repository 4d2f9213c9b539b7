package ddqn

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// naiveGemm is the obviously right twin, with the order of additions that gemm.go promises.
func naiveGemm(c []float32, m, n, k int, a matrix, b, bias []float32, low float32) {
	for i := range m {
		for j := range n {
			var sum float32
			if bias != nil {
				sum = bias[j]
			}
			for l := range k {
				sum += float32(a.data[i*a.row+l*a.col] * b[l*n+j])
			}
			if sum < low {
				sum = low
			}
			c[i*n+j] = sum
		}
	}
}

func sameBits(a, b []float32) int {
	if len(a) != len(b) {
		return 0
	}
	for i := range a {
		// Which of several NaN patterns comes out is the processor's choice.
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]) {
			return i
		}
	}
	return -1
}

func TestGemmEqualsNaive(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m, n := rapid.IntRange(1, 21).Draw(t, "m"), rapid.IntRange(1, 50).Draw(t, "n")
			k := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(longK-2, longK+2)).Draw(t, "k")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			a := rowMajor(randomFloats(rng, m*k), k)
			if rapid.Bool().Draw(t, "transposed") {
				a = transposed(a.data, m)
			}
			b, bias := randomFloats(rng, k*n), randomFloats(rng, n)
			if rapid.Bool().Draw(t, "no bias") {
				bias = nil
			}
			if rapid.Bool().Draw(t, "odd values") {
				b[rng.IntN(len(b))] = float32(math.NaN())
				a.data[rng.IntN(len(a.data))] = float32(math.Inf(1))
			}
			low := rapid.SampledFrom([]float32{0, unbounded}).Draw(t, "low")
			got, want := make([]float32, m*n), make([]float32, m*n)
			var pad padding
			for range 2 { // the second time with used padding
				gemm(got, m, n, k, a, b, bias, low, &pad)
			}
			naiveGemm(want, m, n, k, a, b, bias, low)
			if i := wrongProduct(got, want); i >= 0 {
				t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
			}
		})
	})
}

func BenchmarkGemm(b *testing.B) {
	const m, n, k = 512, 64, 64
	rng := rand.New(rand.NewPCG(1, 1))
	x, w, bias, c := randomFloats(rng, m*k), randomFloats(rng, k*n), randomFloats(rng, n), make([]float32, m*n)
	var pad padding
	for b.Loop() {
		gemm(c, m, n, k, rowMajor(x, k), w, bias, 0, &pad)
	}
	b.ReportMetric(2*m*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
