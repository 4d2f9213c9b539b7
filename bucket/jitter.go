package bucket

import "math"

// jitter is, for each length, the largest part of the length by which its samples move up in the order, times 2^16.
//
// Two samples of a batch meet again in the next epoch if neither moves further than the range of lengths of a batch. A move by the part w
// pads by w/2 on average. Let a batch of length l have n samples and span the part s of its length. Then
//
//	n exp(-w/s) + price l w/2
//
// is what a sample adds to the pairs that meet again and, at some price, to the padding. It is least for w = s ln(n / (price l s/2)). The
// price is the lowest with which padding adds at most a given share to the work. So short samples, which come in large batches and take
// little time, move far; long samples hardly move.
func jitter(hist []uint32, batch []int, rate []float64, share float64) []uint32 {
	before := make([]float64, len(hist)+1)
	total := 0.0
	for l, n := range hist {
		before[l+1] = before[l] + float64(n)
		total += float64(n) * rate[l]
	}
	span := make([]float64, len(hist))
	for l, n := range hist {
		if n > 0 {
			// Samples per unit of ln(length), over a tenth around.
			from, to := int(float64(l)*.95), min(len(hist), int(math.Ceil(float64(l)*1.05))+1)
			density := (before[to] - before[from]) / math.Log(float64(to)/float64(max(from, 1)))
			span[l] = float64(batch[l]) / density
		}
	}
	width := func(l int, price float64) float64 {
		gain := float64(batch[l]) / (price * rate[l] * span[l] / 2)
		if gain <= 1 {
			return 0
		}
		return min(span[l]*math.Log(gain), mostWidth/unit)
	}
	padding := func(price float64) (sum float64) {
		for l, n := range hist {
			if n > 0 {
				sum += float64(n) * rate[l] * width(l, price) / 2
			}
		}
		return sum
	}
	low, high := -60.0, 60.0 // logarithm of the price over the mean rate
	mean := total / max(1, before[len(hist)])
	for range 40 {
		if middle := (low + high) / 2; padding(math.Exp(middle)/mean) <= share*total {
			high = middle
		} else {
			low = middle
		}
	}
	out := make([]uint32, len(hist))
	for l, n := range hist {
		if n > 0 {
			out[l] = uint32(width(l, math.Exp(high)/mean) * unit)
		}
	}
	return out
}
