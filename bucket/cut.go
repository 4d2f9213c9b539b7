package bucket

import (
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/ordering"
)

// class is the ranks' places for a batch in a step that take the same share of the anchor duration.
type class struct {
	share float64 // of the anchor duration, on a rank of speed 1
	slots []int   // places, counted over all ranks in their order
}

// slots are the places for batches in a step, each on one rank, and their classes, the largest share first. A rank has as many
// places as its speed has units, rounded, at least one, and what then differs is its share. The unit is the speed of the rank
// at the lower quartile, so that a few slow ranks get smaller batches, not the others more; or the fastest rank has most.
func slots(speeds []float64, most int) (ranks []int, classes []class) {
	rising := slices.Clone(speeds)
	slices.Sort(rising)
	fastest := rising[len(rising)-1]
	unit := max(rising[len(rising)/4], fastest/8)
	if most > 0 {
		unit = fastest / float64(most)
	}
	number := func(v float64) int { return max(1, int(v/unit+.5)) }
	largest := 0.0
	for _, v := range speeds {
		largest = max(largest, v/float64(number(v)))
	}
	at := map[float64]int{}
	for r, v := range speeds {
		share := v / float64(number(v)) / largest
		if _, ok := at[share]; !ok {
			at[share] = len(classes)
			classes = append(classes, class{share: share})
		}
		for range number(v) {
			c := &classes[at[share]]
			c.slots = append(c.slots, len(ranks))
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(classes, func(a, b class) int {
		switch {
		case a.share > b.share:
			return -1
		case a.share < b.share:
			return 1
		}
		return 0
	})
	return ranks, classes
}

// cut is a batch before it has a rank.
type cut struct {
	start, count uint32
	longest      int     // of pairs the longest of both
	seconds      float64 // over the share of its class
}

// cutter cuts an order, from its end, into cycles: a batch for each place.
type cutter struct {
	p       *Plan
	o       *order
	l       Lengths // where the order is loose: batches are cut by true lengths
	sides   []shape // of two lengths: by position
	classes []class
	places  int
	shift   float64
	enough  int  // samples of the first batch that may be smaller
	few     bool // of them
	late    int  // steps by which a place may wait for shorter samples
	// durations, if any, are those of the cycles, in place of the anchors.
	durations []float64
}

// next is the length to which a batch would be padded that begins with the position before pos.
func (c *cutter) next(pos int, group *int) int {
	if c.l != nil {
		return int(min(c.l[c.o.index[pos-1]], uint32(c.p.limit)))
	}
	for c.o.start[*group] >= pos {
		*group--
	}
	return int(c.o.pad[*group])
}

// take is how many samples before pos, at least one, make a batch within most seconds and the largest size of their longest;
// and that longest.
func (c *cutter) take(pos, longest int, most float64, size func(length int) int) (n, pad int) {
	p := c.p
	most *= 1 + 1e-9
	if c.sides != nil {
		n, pad = c.takePair(pos, most, size)
		return p.fitting(n, n), pad
	}
	if c.l == nil {
		n = size(longest)
		if p.cost.Seconds(longest, n) > most {
			n = max(1, sort.Search(n, func(b int) bool { return p.cost.Seconds(longest, b+1) > most }))
		}
		return p.fitting(min(n, pos), n), longest
	}
	for n = 1; n < pos; n++ {
		v := max(longest, int(min(c.l[c.o.index[pos-n-1]], uint32(p.limit))))
		if n+1 > size(v) || p.cost.Seconds(v, n+1) > most {
			break
		}
		longest = v
	}
	return p.fitting(n, n), longest
}

func (c *cutter) best(length int) int {
	if c.p.two != nil {
		return c.p.cost.Cap(length) // the longest of both need not be a sample's
	}
	return c.p.best[length]
}

// fitting is a batch size that the device likes: a multiple, where it holds one and the batch is not simply what is left.
func (p *Plan) fitting(n, wanted int) int {
	if m := p.BatchMultiple; m > 1 && n >= m && n == wanted {
		return n - n%m
	}
	return n
}

// all cuts what lies behind position stop into batches that last no longer than the anchors times scale times their share, and
// gives them by class, with the number of cycles and the end of what is left. A place whose share has no room for a sample
// waits for shorter ones. One cycle has fewer samples, by up to a batch in all as shift, 0 to 1, says: that moves all after
// it, so that batches differ between epochs though nothing else moves. A last cycle that is not nearly full is not cut; size is
// the number of cycles with the part of that one.
func (c *cutter) all(scale float64, end, stop int) (cuts [][]cut, cycles, rest int, size float64) {
	cuts = make([][]cut, len(c.classes))
	group, shifted := len(c.o.start)-2, false
	before := make([]int, len(c.classes))
	for pos := end; pos > stop; cycles++ {
		begin := pos
		for k := range cuts {
			before[k] = len(cuts[k])
		}
		longest := c.next(pos, &group)
		target := c.p.target[longest]
		switch {
		case cycles < len(c.durations):
			target = c.durations[cycles]
		case c.p.best[longest] > fewSamples:
			target *= scale
		}
		fewer, turn := 0, 0
		if n, _ := c.take(pos, longest, target, c.best); !shifted && n >= c.enough {
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
				longest = c.next(pos, &group)
				if class.share < 1 && c.p.cost.Seconds(longest, 1) > target*class.share {
					break
				}
				n, pad := c.take(pos, longest, target*class.share*c.dither(longest, pos, class.share), c.best)
				if class.share < 1 && n < fewShared && cycles*len(class.slots)-len(cuts[k]) < c.late*len(class.slots) &&
					c.p.cost.Seconds(pad, n) < poorly*target*class.share {
					break
				}
				n = min(max(1, n-(fewer+turn)/c.places), pos-stop)
				turn++
				pos -= n
				cuts[k] = append(cuts[k], cut{uint32(pos), uint32(n), pad, c.p.cost.Seconds(pad, n) / class.share})
			}
		}
	}
	return cuts, cycles, stop, float64(cycles)
}

// dither is the part of its share of the anchor that a batch takes which begins before pos.
func (c *cutter) dither(longest, pos int, share float64) float64 {
	if int(share*float64(c.p.best[longest])) < c.p.DitherFrom {
		return 1
	}
	return 1 - c.p.Dither*float64(ordering.Mix(c.o.salt, uint64(pos))>>11)/(1<<53)
}

// poorly is the part of its share that a place leaves to shorter samples rather than fill no more of it, if it were with fewer than
// fewShared samples, as long as it is not late by too many steps.
const (
	poorly    = .95
	fewShared = 6
)

// even is about the least scale with which what lies behind stop fills so many steps and no more.
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
		// With few steps and slow ranks the size jumps, and the estimate may be far off: hundreds of steps in place of two.
		if _, _, _, size = c.all(high, end, stop); size > want {
			scale = bisect(high, 1)
		}
	}
	if c.few && want <= fewSteps { // as sizes jump, a much smaller scale may do
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

// stepDurations are durations, one for each step, with which the order from end down to stop takes the least time: exact among the
// candidates but for the grid of positions, and among steps of consecutive batches, all of which last up to the step's duration.
//
// In an epoch of a few steps equal ones waste what no later step makes good: a batch may end where the length changes, and
// so pad nothing, only if its step may be a little shorter or longer than the others.
func (c *cutter) stepDurations(end, stop, steps int) []float64 {
	longest := c.p.longestStep()
	candidates := make([]float64, 0, durationsTried)
	for k := range durationsTried {
		candidates = append(candidates, longest*math.Pow(leastDuration, float64(k)/(durationsTried-1)))
	}
	grid := (end-stop)/max(8, min(positionsTried*steps, placesTried/c.places)) + 1
	// left[k] is the least time of what lies behind stop, up to position stop + k grid.
	left := make([]float64, (end-stop+grid-1)/grid+1)
	of := func(pos int) float64 { return left[(pos-stop+grid-1)/grid] }
	total, after := make([]float64, len(candidates)), make([]int, len(candidates))
	try := func(pos int) (best float64) {
		best = math.Inf(1)
		group := c.o.group(pos - 1)
		for k, t := range candidates {
			reached, seconds := c.reach(pos, stop, group, t)
			after[k], total[k] = reached, seconds+of(reached)
			best = min(best, total[k])
		}
		return best
	}
	for k := 1; k < len(left); k++ {
		pos := min(end, stop+k*grid)
		left[k] = math.Inf(1)                           // a step that stays within the grid's cell leads nowhere
		if left[k] = try(pos); math.IsInf(left[k], 1) { // a cell has more samples than a step
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

// longestStep is what the most efficient batch takes at most, of any length.
func (p *Plan) longestStep() (seconds float64) {
	for l, n := range p.hist {
		if n > 0 {
			seconds = max(seconds, p.cost.Seconds(l, p.best[l]))
		}
	}
	return seconds
}

const (
	durationsTried = 300
	leastDuration  = .25 // of the longest
	positionsTried = 200 // for each step
	placesTried    = 16_000
)

// reach is where a step ends that begins before pos and lasts no longer than a duration, and what it lasts.
func (c *cutter) reach(pos, stop, group int, duration float64) (end int, seconds float64) {
	for _, class := range c.classes {
		for range class.slots {
			if pos <= stop {
				return pos, seconds
			}
			longest := c.next(pos, &group)
			n, pad := c.take(pos, longest, duration*class.share*c.dither(longest, pos, class.share), c.best)
			n = min(n, pos-stop)
			seconds = max(seconds, c.p.cost.Seconds(pad, n)/class.share)
			pos -= n
		}
	}
	return pos, seconds
}
