package partition

import (
	"math"
	"sort"

	"evenkeel/bucket"
)

// Efficient returns, for each length that occurs, the batch size with the least time per sample, and that time. Between two breaks
// t = a + bB, so t/B is monotone, and only the breaks, 1 and the cap can be best.
func Efficient(hist []uint32, c bucket.Cost) (best []int, rate []float64) {
	best, rate = make([]int, len(hist)), make([]float64, len(hist))
	for l, n := range hist {
		if n == 0 {
			continue
		}
		top := c.Cap(l)
		rate[l] = math.Inf(1)
		try := func(b int) {
			// The cap wins ties, because it comes first.
			if r := c.Seconds(l, b) / float64(b); b <= top && r < rate[l]*(1-1e-12) {
				best[l], rate[l] = b, r
			}
		}
		if top >= 1 {
			try(top)
			try(1)
		}
		for _, b := range c.Breaks(l) {
			try(b)
		}
	}
	return best, rate
}

// Bound is a lower bound on the epoch time in seconds, on ranks of these speeds, from rate, the least time per sample of each length. A
// sample may be in a batch of any longer length that occurs. With alone, a sample takes least in batches of its own kind; that holds for
// samples of two lengths, since seconds rise with both.
func Bound(hist []uint32, rate, speeds []float64, alone bool) float64 {
	speed, sum, least := 0.0, 0.0, math.Inf(1)
	for _, v := range speeds {
		speed += v
	}
	for l := len(hist) - 1; l >= 0; l-- {
		if hist[l] > 0 {
			if least = min(least, rate[l]); alone {
				least = rate[l]
			}
			sum += float64(hist[l]) * least
		}
	}
	return sum / speed
}

// Boundaries cuts the lengths of a histogram into at most n ranges of about equal work (samples times rate), and returns the longest
// length of each range.
func Boundaries(hist []uint32, rate []float64, n int) []int {
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

// Bands are up to twelve ranges of lengths of about equal work, for people to read; batch is the batch of a length.
func Bands(hist []uint32, rate []float64, c bucket.Cost, batch func(length int) int) (out []bucket.Band) {
	for _, u := range Boundaries(hist, rate, 12) {
		b := batch(u)
		out = append(out, bucket.Band{Upper: u, Batch: b, Seconds: c.Seconds(u, b)})
	}
	for l, n := range hist {
		if n > 0 {
			out[sort.Search(len(out)-1, func(k int) bool { return out[k].Upper >= l })].Samples += int(n)
		}
	}
	return out
}
