package partition

import (
	"math"
	"slices"

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
	// durations, if any, are the durations of the cycles, instead of anchors.
	durations []float64
}

func (c *cutter) take(pos, longest int, most float64) (n, pad int) {
	return c.row.Take(pos, longest, most*(1+1e-9), c.Size)
}

// all cuts the samples from position end down to position stop into batches that last up to the anchor times scale times the share of
// their place. Cycles whose longest samples have efficient batches of up to FewSamples are not scaled, and a single sample may last longer.
// It returns the batches by class, the number of cycles, and the position below which nothing is cut.
//
// A place whose share is too short for a sample waits for shorter samples. One cycle has fewer samples, by the part shift of a batch. That
// moves all later batches, so they can differ between epochs even if nothing else is random. A last cycle that is less than half full is
// not cut. size is the number of cycles, with the filled part of the last one.
func (c *cutter) all(scale float64, end, stop int) (cuts [][]Cut, cycles, rest int, size float64) {
	cuts = make([][]Cut, len(c.classes))
	shifted := false
	before := make([]int, len(c.classes))
	for pos := end; pos > stop; cycles++ {
		begin := pos
		for k := range cuts {
			before[k] = len(cuts[k])
		}
		longest := c.row.Next(pos)
		target := c.Target[longest]
		switch {
		case cycles < len(c.durations):
			target = c.durations[cycles]
		case c.Best[longest] > FewSamples:
			target *= scale
		}
		fewer, turn := 0, 0
		if n, _ := c.take(pos, longest, target); !shifted && n >= c.enough {
			shifted, fewer = true, int(c.shift*float64(n))
		}
		for k, class := range c.classes {
			for made := 0; len(cuts[k]) < (cycles+1)*len(class.slots) && made < 2*len(class.slots); made++ {
				if pos <= stop {
					size = float64(cycles) + float64(turn)/float64(c.places)
					if turn*2 < c.places {
						for k, n := range before {
							cuts[k] = cuts[k][:n]
						}
						return cuts, cycles, begin, size
					}
					return cuts, cycles + 1, stop, size
				}
				longest = c.row.Next(pos)
				if class.share < 1 && c.Cost.Seconds(longest, 1) > target*class.share {
					break
				}
				n, pad := c.take(pos, longest, target*class.share*c.dither(longest, pos, class.share))
				if class.share < 1 && n < fewShared && cycles*len(class.slots)-len(cuts[k]) < c.late*len(class.slots) &&
					c.Cost.Seconds(pad, n) < poorly*target*class.share {
					break
				}
				n = min(max(1, n-(fewer+turn)/c.places), pos-stop)
				turn++
				pos -= n
				cuts[k] = append(cuts[k], Cut{uint32(pos), uint32(n), pad, c.Cost.Seconds(pad, n) / class.share})
			}
		}
	}
	return cuts, cycles, stop, float64(cycles)
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

// even finds approximately the least scale with which the samples down to stop fill at most this number of steps.
func (c *cutter) even(steps, end, stop int) float64 {
	_, _, _, size := c.all(1, end, stop)
	want, near := max(float64(steps), math.Ceil(size)), max(.05, 1.01/float64(c.places))
	scale := 1.0
	for range 4 {
		if size <= want && size > want-near && !c.few {
			return scale
		}
		scale = min(1, scale*size/(want-near/2))
		_, _, _, size = c.all(scale, end, stop)
	}
	bisect := func(low, high float64) float64 {
		for range 12 {
			middle := (low + high) / 2
			if _, _, _, size = c.all(middle, end, stop); size <= want {
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
		if _, _, _, size = c.all(high, end, stop); size > want {
			scale = bisect(high, 1)
		}
	}
	if c.few && want <= fewSteps { // the size jumps, so a much smaller scale may be enough
		least := scale
		size = want
		for low := scale / 1.15; size <= 1.3*want && low > scale/32; low /= 1.15 {
			if _, _, _, size = c.all(low, end, stop); size <= want {
				least = low
			}
		}
		if least < scale {
			return bisect(least/1.15, least)
		}
	}
	return scale
}

// stepDurations finds a duration for each step with which the order from end down to stop takes the least time. It is exact, up to a grid
// of positions, for candidate durations and steps of consecutive batches that last up to the duration of the step.
//
// In an epoch of few steps, steps of equal duration waste time: a batch that ends where the length changes pads nothing, but that requires
// steps that are a little shorter or longer than others.
func (c *cutter) stepDurations(end, stop, steps int) []float64 {
	longest := c.LongestStep()
	candidates := make([]float64, 0, durationsTried)
	for k := range durationsTried {
		candidates = append(candidates, longest*math.Pow(leastDuration, float64(k)/(durationsTried-1)))
	}
	grid := (end-stop)/max(8, min(positionsTried*steps, placesTried/c.places)) + 1
	// left[k] is the least time of the samples between stop and position stop + k grid.
	left := make([]float64, (end-stop+grid-1)/grid+1)
	of := func(pos int) float64 { return left[(pos-stop+grid-1)/grid] }
	total, after := make([]float64, len(candidates)), make([]int, len(candidates))
	try := func(pos int) (best float64) {
		best = math.Inf(1)
		for k, t := range candidates {
			reached, seconds := c.reach(pos, stop, t)
			after[k], total[k] = reached, seconds+of(reached)
			best = min(best, total[k])
		}
		return best
	}
	for k := 1; k < len(left); k++ {
		pos := min(end, stop+k*grid)
		left[k] = math.Inf(1)                           // a step must leave its cell of the grid
		if left[k] = try(pos); math.IsInf(left[k], 1) { // no step can, as a cell has more samples than a step
			left[k] = left[k-1] + longest
		}
	}
	var out []float64
	for pos := end; pos > stop; {
		k := slices.Index(total, try(pos))
		out = append(out, candidates[k])
		pos = after[k]
	}
	return out
}

const (
	durationsTried = 300
	leastDuration  = .25 // of the longest
	positionsTried = 200 // for each step
	placesTried    = 16_000
)

// reach is the end of a step that begins before pos and lasts at most a duration, and how long it lasts.
func (c *cutter) reach(pos, stop int, duration float64) (end int, seconds float64) {
	for _, class := range c.classes {
		for range class.slots {
			if pos <= stop {
				return pos, seconds
			}
			longest := c.row.Next(pos)
			n, pad := c.take(pos, longest, duration*class.share*c.dither(longest, pos, class.share))
			n = min(n, pos-stop)
			seconds = max(seconds, c.Cost.Seconds(pad, n)/class.share)
			pos -= n
		}
	}
	return pos, seconds
}
