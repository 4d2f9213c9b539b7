package bucket

import (
	"cmp"
	"slices"

	"evenkeel/internal/badinput"
)

// class is a set of places: places for a batch in a step that get the same share of the anchor duration.
type class struct {
	share float64 // of the anchor duration, on a rank of speed 1
	slots []int   // places, counted over all ranks in their order
}

// A place with nearly the largest share waits for no shorter samples, unless the limits of a step leave it too little. Samples that make a batch alone
// pass by a smaller one: its rank is idle or takes shorter samples.
const nearly = .899

// slots are the places of a step: by default the fewest, with at most eight of the fastest rank, with which an eighth of the ranks' speed at most stands
// in places that long samples pass by, or with which the least does.
func (p *Plan) slots() (ranks []int, classes []class) {
	if p.MicroBatches > 0 {
		return places(p.Speeds, p.MicroBatches)
	}
	least := 2.0
	for n := 1; n <= 8 && least > 1./8; n++ {
		r, all := places(p.Speeds, n)
		if _, err := p.limits(all); err != nil && n > 1 {
			break // the limits of a step leave nothing for so many
		}
		speed, passed := 0.0, 0.0
		for _, c := range all {
			own := c.share * float64(len(c.slots))
			if speed += own; c.share < nearly {
				passed += own
			}
		}
		if passed/speed < least*(1-1e-9) { // more is not less by rounding
			least, ranks, classes = passed/speed, r, all
		}
	}
	return ranks, classes
}

// places returns the rank of each place in a step, and the classes of places, the largest share first. The number of a rank's places is in proportion
// to its speed, rounded, at least one; the share of its places makes up for the rounding.
func places(speeds []float64, most int) (ranks []int, classes []class) {
	unit := slices.Max(speeds) / float64(most)
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
	slices.SortStableFunc(classes, func(a, b class) int { return cmp.Compare(b.share, a.share) })
	return ranks, classes
}

// StepBatches is the number of batches of each rank in a full step.
func (p *Plan) StepBatches() []int {
	out := make([]int, p.Ranks)
	of, _ := p.slots()
	for _, rank := range of {
		out[rank]++
	}
	return out
}

// limits are the limits of one batch of the largest share.
type limits struct{ padTo, samples, tokens int }

// limits are those of one batch: those of a step, divided by the sum of the shares. An error names a limit with which all batches would be empty.
func (p *Plan) limits(classes []class) (limits, error) {
	sum, least := 0.0, 1.0
	for _, c := range classes {
		sum, least = sum+c.share*float64(len(c.slots)), min(least, c.share)
	}
	per := func(n int) int { return int(float64(n) / sum) }
	l := limits{max(1, p.PadTo), per(p.MaxSamples), per(p.MaxTokens)}
	for _, f := range []struct {
		name        string
		value, size int
	}{{"max samples", p.MaxSamples, l.samples}, {"max tokens", p.MaxTokens, l.tokens}} {
		if f.value > 0 && float64(f.size)*least < 1 {
			return l, badinput.Errorf("%s %d: a batch of the slowest of %d ranks would be empty: allow more, or plan for fewer ranks", f.name, f.value, p.Ranks)
		}
	}
	return l, nil
}

// of is the largest batch of samples with this number of tokens, for a place with this share: at most n, and within its part of the limits. It is
// 0 if a single sample exceeds the limit on tokens.
func (l limits) of(n, tokens int, share float64) int {
	if l.samples > 0 {
		n = min(n, int(share*float64(l.samples)))
	}
	if l.tokens > 0 {
		n = min(n, int(share*float64(l.tokens))/tokens)
	}
	return n
}

// up is a number rounded up to a multiple.
func up(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// checkLimits reports the longest sample that fits into memory but not into the limits of a step.
func (p *Plan) checkLimits(l Lengths) error {
	for k, n := range slices.Backward(p.hist) {
		if tokens, most := up(k, p.cost.limits.padTo), p.cost.limits.tokens; n > 0 && most > 0 && tokens > most && p.given.Cap(tokens) > 0 {
			return badinput.Errorf("max tokens %d of a step leave %d for a batch: sample %d, of length %d, fits into none: allow more, or plan for fewer ranks", p.MaxTokens, most, slices.Index(l, uint32(k)), k)
		}
	}
	return nil
}
