package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Select is what sorting says, and parts the values at the place; some sequences take more passes than are allowed.
func TestSelect(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	makers := map[string]func(i, n int) float64{
		"drawn": func(int, int) float64 { return rng.Float64() }, "equal": func(int, int) float64 { return 1 },
		"rising": func(i, _ int) float64 { return float64(i) }, "falling": func(i, _ int) float64 { return -float64(i) },
		"few": func(int, int) float64 { return float64(rng.IntN(3)) }, "organ pipe": func(i, n int) float64 { return float64(min(i, n-i)) },
		"slow": func(i, n int) float64 { // of every three that the pivot is taken from, two are small
			if i == 0 || i == n-1 || i%2 == 0 {
				return float64(i)
			}
			return float64(n + i)
		},
	}
	for name, value := range makers {
		for _, n := range []int{1, 2, 3, 12, 13, 14, 40, 257} {
			values := make([]float64, n)
			for i := range values {
				values[i] = value(i, n)
			}
			sorted := slices.Sorted(slices.Values(values))
			for k := range n {
				got := slices.Clone(values)
				if v := Select(got, k); v != sorted[k] || got[k] != v {
					t.Fatalf("%s, %d of %d: %v, sorted %v", name, k, n, v, sorted[k])
				}
				if n > 1 && (k > 0 && slices.Max(got[:k]) > got[k] || k+1 < n && slices.Min(got[k+1:]) < got[k]) {
					t.Fatalf("%s, %d of %d: %v is not parted", name, k, n, got)
				}
				if slices.Sort(got); !slices.Equal(got, sorted) {
					t.Fatalf("%s: values were lost", name)
				}
			}
		}
	}
}
