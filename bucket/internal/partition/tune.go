package partition

import (
	"math"

	"evenkeel/bucket"
)

// Knobs are what mixing sets, all together.
type Knobs struct {
	Padding float64 // the jitter of lengths may add this share of the work
	Waiting float64 // steps of unequal durations may add this share of the epoch
	Slack   float64 // few anchor durations may add this share of the work; with few, batches of more lengths take equally long
	Loose   bool    // batches are cut by true lengths, since the longest length of a group says little of the others
	Random  bool    // the order is chance alone
}

// KnobsOf are the knobs of a mixing. At 0 nothing moves; towards 1 the jitter grows without bound.
func KnobsOf(mixing float64) Knobs {
	if mixing == 0 {
		return Knobs{}
	}
	odds := mixing / max(1e-9, 1-mixing)
	return Knobs{.012 * odds, min(.5, .014*odds), min(.1, .012*odds), mixing > .8, mixing > .999}
}

// Up to fewBatches batches, the steps of an epoch are made equal down to its last batch; up to a quarter of that, other numbers of
// steps are tried as well.
const fewBatches = 4000

// ManyBatches is the number of batches above which the last step of an epoch does not count.
const ManyBatches = 100_000

// Up to fewSteps steps, the time of an epoch may jump when a slow rank takes one sample more.
const fewSteps = 16

// Found is an epoch cut by some settings, and its score.
type Found struct {
	bucket.Settings
	bucket.Score
	Epoch *Epoch
}

// Tune finds what only a whole epoch shows: the number of steps of equal duration. Sorted: steps of unequal durations are tried too. Predict
// cuts an epoch by settings.
func (j *Job) Tune(k Knobs, samples int, sorted bool, predict func(s bucket.Settings, epoch uint64) Found) Found {
	s := j.Settings
	s.Tolerance = k.Waiting
	s.Dither, s.DitherFrom = j.dither(k.Slack)
	found := predict(s, 0)
	ranks := len(j.Speeds)
	if found.Steps*ranks > ManyBatches {
		return found
	}
	// Durations that differ by the dither are dealt to so many steps: few cannot be even.
	s.Dither = min(s.Dither, .006*float64(found.Steps))
	s.EvenSteps = min(found.Steps+found.Steps/200, samples) // epochs differ a little
	found = predict(s, 0)
	if found.Steps*ranks <= fewBatches/4 {
		found = j.evenSteps(found, samples, predict)
		if sorted {
			s := found.Settings
			s.StepDurations = true
			if other := predict(s, 0); other.EpochSeconds < found.EpochSeconds {
				found = other
			}
		}
	}
	return found
}

// dither finds the largest random part by which batches may be made shorter for no more work than the slack allows, and the batch size
// from which on that is done, the smallest possible: in a small batch, one sample less leaves much of the duration unused.
func (j *Job) dither(slack float64) (part float64, from int) {
	least := j.dithered(0, 0)
	for _, from := range []int{4, 16, 64} {
		for _, part := range []float64{.15, .12, .1, .08, .06, .04, .03, .02} {
			if j.dithered(part, from) <= least*(1+slack) {
				return part, from
			}
		}
	}
	return 0, 0
}

// dithered is the work of all samples on one rank with a dither.
func (j *Job) dithered(part float64, from int) (sum float64) {
	for l, n := range j.Hist {
		if n == 0 {
			continue
		}
		if j.Best[l] < from || part == 0 {
			b := Within(j.Cost, l, j.Best[l], j.Target[l])
			sum += 3 * float64(n) * j.Cost.Seconds(l, b) / float64(b)
			continue
		}
		for _, at := range []float64{1. / 6, 3. / 6, 5. / 6} {
			b := Within(j.Cost, l, j.Best[l], j.Target[l]*(1-at*part))
			sum += float64(n) * j.Cost.Seconds(l, b) / float64(b)
		}
	}
	return sum
}

// evenSteps tries numbers of steps of equal duration; where steps are few and ranks unequal, by the mean of several epochs,
// since a number that fits one epoch may be far off for others.
func (j *Job) evenSteps(first Found, samples int, predict func(s bucket.Settings, epoch uint64) Found) Found {
	epochs := 1
	if _, classes := slots(j.Speeds, j.MicroBatches); first.Steps <= fewSteps && len(classes) > 1 {
		epochs = 4
	}
	best, least, worse := first, math.Inf(1), 0
	for n := max(1, first.Steps-1); worse < 8 && n <= min(20*(first.Steps+1), samples); n += max(1, n/16) {
		s := first.Settings
		s.EvenSteps = n
		var found Found
		sum := 0.0
		for e := epochs - 1; e >= 0; e-- {
			found = predict(s, uint64(e))
			sum += found.EpochSeconds
		}
		if worse++; sum < least {
			best, least, worse = found, sum, 0
		}
	}
	return best
}
