package bucket

import "math"

// Bound is the lower bound of the epoch time in seconds: no schedule of these samples on
// ranks of these speeds (relative; 1: the cost's own) is shorter, whatever its batches.
//
// A batch padded to length L takes at least rate(L) = min over B of Seconds(L, B)/B per
// sample, B up to Cap(L). A sample of length l may ride in a batch of any occurring length
// L >= l, so it costs at least r(l) = min over such L of rate(L). A step lasts s; in it
// rank i does at most s times its speed of work. So the epoch lasts at least the sum of
// r(l) over all samples, divided by the sum of the speeds. Samples that fit nowhere count
// as the longest length that fits: use the plan's own bound where they are skipped.
func Bound(l Lengths, c Cost, speeds []float64) float64 {
	hist := l.histogram()
	top := len(hist) - 1
	for top > 0 && c.Cap(top) < 1 {
		hist[top-1] += hist[top]
		top--
	}
	hist = hist[:top+1]
	_, rate := efficient(hist, c)
	return bound(hist, rate, speeds, false)
}

// efficient gives, for each length that occurs, the batch size with the least time per
// sample and that time. Between two breaks t = a + bB, so t/B is monotone: only the
// breaks, 1 and the cap can be best.
func efficient(hist []uint32, c Cost) (best []int, rate []float64) {
	best, rate = make([]int, len(hist)), make([]float64, len(hist))
	for l, n := range hist {
		if n == 0 {
			continue
		}
		top := c.Cap(l)
		rate[l] = math.Inf(1)
		try := func(b int) {
			// Of equals the largest, which comes first.
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

// bound is Bound of a histogram. Alone: of samples with two lengths, of which seconds rise with both, none takes less than in
// batches of its own kind.
func bound(hist []uint32, rate, speeds []float64, alone bool) float64 {
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
