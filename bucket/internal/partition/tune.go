package partition

import (
	"math"

	"evenkeel/bucket"
)

// Knobs are the settings that follow from mixing.
type Knobs struct {
	Padding float64 // the jitter of lengths may add this share of the work
	Waiting float64 // steps of unequal durations may add this share of the epoch
	Slack   float64 // few anchor durations may add this share of the work; then batches of more lengths take equally long
	Loose   bool    // batches are cut by true lengths, not by the longest lengths of groups
	Random  bool    // the order is random
}

// KnobsOf are the knobs for a mixing. At 0 nothing moves; towards 1 the jitter grows without bound.
func KnobsOf(mixing float64) Knobs {
	if mixing == 0 {
		return Knobs{}
	}
	odds := mixing / max(1e-9, 1-mixing)
	return Knobs{.012 * odds, min(.5, .014*odds), min(.1, .012*odds), mixing > .8, mixing > .999}
}

// fewBatches: in an epoch of up to this number of batches, steps are made equal down to the last batch. Up to a quarter of it, other
// numbers of steps are tried as well.
const fewBatches = 4000

// ManyBatches is the number of batches above which the last step of an epoch hardly matters.
const ManyBatches = 100_000

// fewSteps: with up to this number of steps, the time of an epoch may jump if a slow rank takes one sample more.
const fewSteps = 16

// Found is an epoch cut by some settings, and its score.
type Found struct {
	bucket.Settings
	bucket.Score
	Epoch *Epoch
}

// Tune finds the number of steps of equal duration by cutting whole epochs. predict cuts and scores an epoch.
func (j *Job) Tune(k Knobs, samples int, predict func(s bucket.Settings, epoch uint64) Found) Found {
	s := j.Settings
	s.Tolerance = k.Waiting
	s.Dither, s.DitherFrom = j.dither(k.Slack)
	found := predict(s, 0)
	ranks := len(j.Speeds)
	if found.Steps*ranks > ManyBatches {
		return found
	}
	// A few steps cannot even out durations that differ by the dither.
	s.Dither = min(s.Dither, .006*float64(found.Steps))
	s.EvenSteps = min(found.Steps+found.Steps/200, samples) // epochs differ a little
	found = predict(s, 0)
	if found.Steps*ranks <= fewBatches/4 {
		found = j.evenSteps(found, samples, predict)
	}
	return found
}

// dither finds the largest random part by which batches may be shortened within the slack, and the smallest possible batch to shorten: in
// a small batch, one sample fewer leaves much of the duration unused.
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

// evenSteps tries numbers of steps of equal duration. With few steps and unequal ranks it takes the mean of several epochs, because the
// best number for one epoch may be bad for others.
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
