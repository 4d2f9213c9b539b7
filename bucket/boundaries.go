package bucket

import "github.com/evenkeel/evenkeel/bucket/internal/input"

// boundaries cuts the lengths of a histogram into at most n ranges of equal work, samples times rate, and returns their
// upper lengths. Each is a length that occurs, the last the longest.
func boundaries(hist []uint32, rate []float64, n int) []int {
	var total float64
	hi := 0
	for l, c := range hist {
		if c > 0 {
			hi = l
			total += float64(c) * rate[l]
		}
	}
	var out []int
	sum := 0.0
	for l, c := range hist {
		if c == 0 {
			continue
		}
		sum += float64(c) * rate[l]
		if l == hi || sum >= total*float64(len(out)+1)/float64(n) && len(out) < n-1 {
			out = append(out, l)
		}
	}
	return out
}

// Uppers are the longest lengths of n ranges of equal count of samples times length, for profiling: where the
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
	return boundaries(hist, rate, n), nil
}
