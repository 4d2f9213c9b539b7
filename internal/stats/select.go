package stats

import (
	"math/bits"
	"slices"
)

// Select returns the number that would be at place k, from 0, if values, which are not NaN, were sorted. It reorders them: those before the place are no larger, those
// after it no smaller. Hoare's quickselect (1961) with the median of three as its pivot; unlike there, what is left after many passes is sorted.
func Select(values []float64, k int) float64 {
	const few = 12 // are sorted as soon
	for passes := 2 * bits.Len(uint(len(values))); passes > 0 && len(values) > few; passes-- {
		last := len(values) - 1
		a, b, c := values[0], values[last/2], values[last]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := 0, last
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			values = values[:j+1]
		case k >= i:
			values, k = values[i:], k-i
		default:
			return values[k]
		}
	}
	slices.Sort(values)
	return values[k]
}
