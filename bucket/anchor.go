package bucket

import (
	"math"
	"slices"
	"sort"
)

// searchAnchors is the anchor search (Huawei, training method for sequence models): durations are recorded by length and
// batch, an anchor duration is chosen among them, and a length takes the largest batch that lasts no longer.
//
// Deviations: the patent has one anchor and moves it until the epoch time meets a condition. Here lengths are not gathered in buckets,
// and there may be several anchors, each longer than the one before by at least a factor. A length takes the largest anchor that its most
// efficient batch reaches. With few anchors, batches of many lengths can share a step; with many, all batches are efficient. Bisection
// looks for the largest factor with which the work of all samples is at most slack above the least possible. If it finds none, the longest
// duration is the only anchor, and every length takes its most efficient batch.
func searchAnchors(hist []uint32, c Cost, best []int, slack float64) []float64 {
	var records []float64
	for l, n := range hist {
		if n > 0 && best[l] > fewSamples {
			records = append(records, c.Seconds(l, best[l]))
		}
	}
	if len(records) == 0 {
		return []float64{0}
	}
	slices.Sort(records)
	records = slices.Compact(records)
	longest := records[len(records)-1]
	if slack <= 0 {
		return []float64{longest} // shorter anchors would not help
	}
	least := work(hist, c, best, []float64{math.Inf(1)})
	low, high := 1.0, longest/records[0]*(1+1e-9)
	found := ladder(records, high)
	if work(hist, c, best, found) <= least*(1+slack) {
		return found
	}
	for range 12 {
		middle := math.Sqrt(low * high)
		if a := ladder(records, middle); work(hist, c, best, a) <= least*(1+slack) {
			low, found = middle, a
		} else {
			high = middle
		}
	}
	if low == 1 {
		return []float64{longest}
	}
	return found
}

// fewSamples is the largest batch that is not shortened to an anchor: one sample fewer would leave much of the duration unused.
const fewSamples = 16

// ladder takes the shortest duration, then each next duration that is longer by more than the factor.
func ladder(records []float64, factor float64) (out []float64) {
	for _, r := range records {
		if len(out) == 0 || r > out[len(out)-1]*factor {
			out = append(out, r)
		}
	}
	return out
}

// work is the time of all samples in full batches, on one rank.
func work(hist []uint32, c Cost, best []int, anchors []float64) (sum float64) {
	for l, limit := range targets(hist, c, best, anchors) {
		if hist[l] > 0 {
			b := within(c, l, best[l], limit)
			sum += float64(hist[l]) * c.Seconds(l, b) / float64(b)
		}
	}
	return sum
}

// anchorOf is the largest anchor up to a duration, or the shortest anchor.
func anchorOf(anchors []float64, seconds float64) float64 {
	if len(anchors) == 1 {
		return anchors[0]
	}
	return anchors[max(0, sort.Search(len(anchors), func(i int) bool { return anchors[i] > seconds*(1+1e-9) })-1)]
}

// within is the largest batch up to top that lasts no longer than the limit, at least 1.
func within(c Cost, length, top int, limit float64) int {
	if c.Seconds(length, top) <= limit*(1+1e-9) {
		return top
	}
	return max(1, sort.Search(top, func(b int) bool { return c.Seconds(length, b+1) > limit*(1+1e-9) }))
}

// targets are the anchor durations of lengths, at most those of their largest batches.
func targets(hist []uint32, c Cost, best []int, anchors []float64) []float64 {
	out := make([]float64, len(hist))
	for l, n := range hist {
		if n > 0 {
			own := c.Seconds(l, best[l])
			if out[l] = own; best[l] > fewSamples {
				out[l] = min(own, anchorOf(anchors, own))
			}
		}
	}
	return out
}
