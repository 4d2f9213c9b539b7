package checkpoint

import (
	"math"
	"slices"
	"time"
)

// Interval finds how many steps to let pass between two saves: as few as the time may cost. It is CheckFreq's rule
// (Mohan, Phanishayee and Chidambaram, "CheckFreq: Frequent, Fine-Grained DNN Checkpointing", FAST 2021) with two
// departures: the overhead is measured from steps with and without a save under way throughout the run, not in a
// profiling phase, and the interval is also bound from below by the share of time that the overhead may take. The
// zero value is ready. It reads no clock.
type Interval struct {
	// Budget is the share of time that saving may add, 0 to 1; 0: 0.035.
	Budget float64

	quiet, busy, persist []time.Duration // the last ones
	extra                int             // steps added because the measured share was above the budget
	since                int             // steps since the last correction
}

const (
	remembered = 32 // measurements of each sort
	needed     = 3  // of each sort, before anything is concluded
)

func remember(d []time.Duration, x time.Duration) []time.Duration {
	d = append(d, x)
	return d[max(0, len(d)-remembered):]
}

func median(d []time.Duration) float64 {
	s := slices.Sorted(slices.Values(d))
	return float64(s[len(s)/2])
}

// Step takes the duration of a training step, and whether a save was under way in it.
func (i *Interval) Step(d time.Duration, saving bool) {
	if saving {
		i.busy = remember(i.busy, d)
	} else {
		i.quiet = remember(i.quiet, d)
	}
	i.since++
	// CheckFreq's correction: two more steps each time the run as a whole proves too slow.
	if i.since >= 2*remembered && len(i.quiet) >= needed && i.share() > i.budget() {
		i.extra += 2
		i.since = 0
	}
}

// Saved takes the time from a save's first write until it was durable.
func (i *Interval) Saved(d time.Duration) { i.persist = remember(i.persist, d) }

func (i *Interval) budget() float64 {
	if i.Budget <= 0 {
		return 0.035
	}
	return i.Budget
}

// overhead is what one save adds to the run, in nanoseconds, and the time of a step without one.
func (i *Interval) overhead() (overhead, step float64) {
	step = median(i.quiet)
	steps := math.Ceil(median(i.persist) / step) // that a save lasts
	return max(0, median(i.busy)-step) * max(1, steps), step
}

// share is what saving adds at the present interval.
func (i *Interval) share() float64 {
	if len(i.busy) < needed || len(i.persist) < needed {
		return 0
	}
	overhead, step := i.overhead()
	return overhead / (step * float64(i.Steps()))
}

// Steps is the interval: 1 saves every step. Until enough was measured it is 2, so that steps of both sorts are seen.
func (i *Interval) Steps() int {
	if len(i.quiet) < needed || len(i.busy) < needed || len(i.persist) < needed {
		return 2
	}
	overhead, step := i.overhead()
	k := math.Ceil((median(i.persist) - overhead) / step) // the next save does not meet this one
	k = max(k, math.Ceil(overhead/(i.budget()*step)), 1)
	return int(min(k, 1<<20)) + i.extra
}
