package bucket

import (
	"math"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Boundary rules.
const (
	EqualCost  = "cost"
	EqualCount = "count"
	Geometric  = "geometric"
)

// boundaries cuts the lengths of a histogram into at most n buckets and returns their
// upper lengths. Each is a length that occurs, the last the longest.
func boundaries(hist []uint32, rate []float64, rule string, n int) []int {
	weight := func(l int) float64 {
		if rule == EqualCount {
			return float64(hist[l])
		}
		return float64(hist[l]) * rate[l]
	}
	var total float64
	lo, hi := 0, 0
	for l, c := range hist {
		if c > 0 {
			if lo == 0 {
				lo = l
			}
			hi = l
			total += weight(l)
		}
	}
	var out []int
	sum := 0.0
	for l, c := range hist {
		if c == 0 {
			continue
		}
		sum += weight(l)
		k := float64(len(out) + 1)
		full := sum >= total*k/float64(n)
		if rule == Geometric {
			full = float64(l) >= float64(lo)*math.Pow(float64(hi)/float64(lo), k/float64(n))*(1-1e-12)
		}
		if l == hi || full && len(out) < n-1 {
			out = append(out, l)
		}
	}
	return out
}

// Uppers are the longest lengths of n buckets of equal total length, for profiling: where the
// time of an epoch is spent, the trials are. Errors are of ErrInput.
func (l Lengths) Uppers(n int) ([]int, error) {
	if n < 2 || n > 4096 {
		return nil, input.Errorf("buckets %d: must be 2 to 4096", n)
	}
	hist := l.histogram()
	rate := make([]float64, len(hist))
	for k := range rate {
		rate[k] = float64(k)
	}
	return boundaries(hist, rate, EqualCost, n), nil
}
