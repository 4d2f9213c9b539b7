package partition

import (
	"math"

	"evenkeel/bucket/internal/ordering"
)

// cutter cuts an order, from its end, into cycles: a batch for each place.
type cutter struct {
	*Job
	order   *ordering.Order
	row     Row
	classes []class
	places  int
	shift   float64 // part of a batch by which one cycle is smaller
	enough  int     // least number of samples of the first batch of that cycle
	few     bool    // the epoch has few batches, so its number of cycles is not a smooth function of the scale
	late    int     // number of steps for which a place may wait for shorter samples
}

func (c *cutter) take(pos, longest int, most, share float64) (n, pad int) {
	return c.row.Take(pos, longest, most*(1+1e-9), func(length int) int { return c.Size(length, share) })
}

// all cuts the samples before position end into batches that last up to the anchor times scale times the share of their place. Cycles whose longest samples have efficient batches of up to FewSamples are not scaled, and a single sample may last longer.
// It returns the batches by class, the number of cycles, and the position below which nothing is cut.
//
// A place whose share is too short for a sample waits for shorter samples. One cycle has fewer samples, by the part shift of a batch. That
// moves all later batches, so they can differ between epochs even if nothing else is random. A last cycle that is less than half full is
// not cut. size is the number of cycles, with the filled part of the last one.
func (c *cutter) all(scale float64, end int) (cuts [][]Cut, cycles, rest int, size float64) {
	cuts = make([][]Cut, len(c.classes))
	shifted := false
	before := make([]int, len(c.classes))
	for pos := end; pos > 0; cycles++ {
		begin := pos
		for k := range cuts {
			before[k] = len(cuts[k])
		}
		longest := c.row.Next(pos)
		target := c.Target[longest]
		if c.Best[longest] > FewSamples {
			target *= scale
		}
		fewer, turn := 0, 0
		if n, _ := c.take(pos, longest, target, 1); !shifted && n >= c.enough {
			shifted, fewer = true, int(c.shift*float64(n))
		}
		for k, class := range c.classes {
			for made := 0; len(cuts[k]) < (cycles+1)*len(class.slots) && made < 2*len(class.slots); made++ {
				if pos == 0 {
					size = float64(cycles) + float64(turn)/float64(c.places)
					if turn*2 < c.places {
						for k, n := range before {
							cuts[k] = cuts[k][:n]
						}
						return cuts, cycles, begin, size
					}
					return cuts, cycles + 1, 0, size
				}
				longest = c.row.Next(pos)
				if class.share < 1 && (c.Cost.Seconds(longest, 1) > target*class.share || c.Size(longest, class.share) < 1) {
					break
				}
				n, pad := c.take(pos, longest, target*class.share*c.dither(longest, pos, class.share), class.share)
				if class.share < 1 && n < fewShared && cycles*len(class.slots)-len(cuts[k]) < c.late*len(class.slots) &&
					c.Cost.Seconds(pad, n) < poorly*target*class.share {
					break
				}
				n = min(max(1, n-(fewer+turn)/c.places), pos)
				turn++
				pos -= n
				cuts[k] = append(cuts[k], Cut{uint32(pos), uint32(n), pad, c.Cost.Seconds(pad, n) / class.share})
			}
		}
	}
	return cuts, cycles, 0, float64(cycles)
}

// dither is the random part of its duration to which the batch before pos is shortened; 1 for batches below DitherFrom.
func (c *cutter) dither(longest, pos int, share float64) float64 {
	if int(share*float64(c.Best[longest])) < c.DitherFrom {
		return 1
	}
	return 1 - c.Dither*float64(ordering.Mix(c.order.Salt, uint64(pos))>>11)/(1<<53)
}

// A place waits for shorter samples if its batch would have fewer than fewShared samples and fill less than the part poorly of its share,
// unless it has already waited for too many steps.
const (
	poorly    = .95
	fewShared = 6
)

// even finds approximately the least scale with which the samples fill at most this number of steps.
func (c *cutter) even(steps, end int) float64 {
	_, _, _, size := c.all(1, end)
	want, near := max(float64(steps), math.Ceil(size)), max(.05, 1.01/float64(c.places))
	scale := 1.0
	for range 4 {
		if size <= want && size > want-near && !c.few {
			return scale
		}
		scale = min(1, scale*size/(want-near/2))
		_, _, _, size = c.all(scale, end)
	}
	bisect := func(low, high float64) float64 {
		for range 12 {
			middle := (low + high) / 2
			if _, _, _, size = c.all(middle, end); size <= want {
				high = middle
			} else {
				low = middle
			}
		}
		return high
	}
	high := min(1, scale*1.02)
	if scale = bisect(scale*.95, high); scale == high {
		// With few steps and slow ranks the size jumps, and the estimate may be wrong by hundreds of steps.
		if _, _, _, size = c.all(high, end); size > want {
			scale = bisect(high, 1)
		}
	}
	if c.few && want <= fewSteps { // the size jumps, so a much smaller scale may be enough
		least := scale
		size = want
		for low := scale / 1.15; size <= 1.3*want && low > scale/32; low /= 1.15 {
			if _, _, _, size = c.all(low, end); size <= want {
				least = low
			}
		}
		if least < scale {
			return bisect(least/1.15, least)
		}
	}
	return scale
}
