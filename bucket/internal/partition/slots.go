package partition

import (
	"cmp"
	"slices"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/input"
)

// class is a set of places: places for a batch in a step that get the same share of the anchor duration.
type class struct {
	share float64 // of the anchor duration, on a rank of speed 1
	slots []int   // places, counted over all ranks in their order
}

// slots returns the rank of each place in a step, and the classes of places, the largest share first. The number of a rank's places is its
// speed divided by a unit, rounded, at least one; the share of its places makes up for the rounding. The unit is the speed of the rank at
// the lower quartile, so that a few slow ranks get smaller batches, instead of all others more batches, but at least an eighth of the
// fastest speed. With most above 0 it is such that the fastest rank has that many places.
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
	slices.SortStableFunc(classes, func(a, b class) int { return cmp.Compare(b.share, a.share) })
	return ranks, classes
}

// StepBatches is the number of places of each rank.
func StepBatches(p *bucket.Plan) []int {
	out := make([]int, p.Ranks)
	of, _ := slots(p.Speeds, p.MicroBatches)
	for _, rank := range of {
		out[rank]++
	}
	return out
}

// Limits are the limits of one batch of the largest share.
type Limits struct{ PadTo, Multiple, Samples, Tokens int }

// StepLimits are the limits of a plan for one batch: those of a step, divided by the sum of the shares. An error names a limit with which
// all batches would be empty.
func StepLimits(p *bucket.Plan) (Limits, error) {
	_, classes := slots(p.Speeds, p.MicroBatches)
	sum, least := 0.0, 1.0
	for _, c := range classes {
		sum, least = sum+c.share*float64(len(c.slots)), min(least, c.share)
	}
	per := func(n int) int { return int(float64(n) / sum) }
	l := Limits{max(1, p.PadTo), max(1, p.BatchMultiple), per(p.MaxSamples), per(p.MaxTokens)}
	for _, f := range []struct {
		name        string
		value, size int
	}{{"max samples", p.MaxSamples, l.Samples}, {"max tokens", p.MaxTokens, l.Tokens}} {
		if f.value > 0 && float64(f.size)*least < 1 {
			return l, input.Errorf("%s %d: a batch of the slowest of %d ranks would be empty", f.name, f.value, p.Ranks)
		}
	}
	return l, nil
}

// Of is the largest batch of samples with this number of tokens, for a place with this share: at most n, within its part of the limits, and a
// whole multiple unless it is smaller than one. It is 0 if a single sample exceeds the limit on tokens.
func (l Limits) Of(n, tokens int, share float64) int {
	if l.Samples > 0 {
		n = min(n, int(share*float64(l.Samples)))
	}
	if l.Tokens > 0 {
		n = min(n, int(share*float64(l.Tokens))/tokens)
	}
	if n >= l.Multiple {
		n -= n % l.Multiple
	}
	return n
}

// Up is a number rounded up to a multiple.
func Up(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Whole rounds a batch size down to a multiple, unless it is smaller than the multiple, or fewer samples are left than wanted.
func Whole(n, wanted, multiple int) int {
	if multiple > 1 && n >= multiple && n == wanted {
		return n - n%multiple
	}
	return n
}

// CheckLimits reports the longest sample that fits into memory but not into the limits of a step, and a multiple that no batch in memory
// reaches. room is the largest batch of a length in memory, and the tokens of a sample with padding.
func CheckLimits(p *bucket.Plan, l bucket.Lengths, hist []uint32, tokens int, room func(length int) (batch, tokens int), name func(length int) string) error {
	if p.MaxTokens == 0 && p.BatchMultiple <= 1 {
		return nil
	}
	largest, of := 0, 0
	for k := len(hist) - 1; k > 0; k-- {
		if hist[k] == 0 {
			continue
		}
		batch, each := room(k)
		if batch > 0 && tokens > 0 && each > tokens {
			return input.Errorf("max tokens %d of a step leave %d for a batch: sample %d, of %s, fits into none", p.MaxTokens, tokens, slices.Index(l, uint32(k)), name(k))
		}
		if batch > largest {
			largest, of = batch, k
		}
	}
	if largest > 0 && largest < p.BatchMultiple {
		return input.Errorf("batch multiple %d: memory holds %d samples at the most, of %s", p.BatchMultiple, largest, name(of))
	}
	return nil
}
