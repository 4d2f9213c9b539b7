package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Interval finds how many steps to let pass between two saves: as few as the time may cost. It is CheckFreq's rule
// (Mohan, Phanishayee and Chidambaram, "CheckFreq: Frequent, Fine-Grained DNN Checkpointing", FAST 2021) with two
// departures: what a save costs is measured throughout the run, not in a profiling phase, as the time that all steps
// took that it touched beyond steps that none touched; and the interval is bound from below by the share of time that
// this may take, instead of being raised by two steps whenever that share was passed. The zero value is ready. It
// reads no clock.
type Interval struct {
	// Budget is the share of time that saving may add, 0 to 1; 0: 0.035.
	Budget float64

	quiet   []time.Duration // the last steps that no save touched
	costs   []time.Duration // of the last saves: their steps' time, beyond as many quiet ones
	persist []time.Duration // of the last saves

	saving     bool // a save was begun and not accounted for
	spent      time.Duration
	touched    int // steps of it
	unfinished int // steps since the last quiet one
}

const (
	remembered = 32 // measurements of each sort
	needed     = 3  // of each sort, before anything is concluded
)

func remember(d []time.Duration, x time.Duration) []time.Duration {
	d = append(d, x)
	return d[max(0, len(d)-remembered):]
}

// middle is the mean without the lowest and the highest eighth: what one save in ten costs counts, what one
// interruption of the machine cost does not.
func middle(d []time.Duration) float64 {
	s := slices.Sorted(slices.Values(d))
	s = s[len(s)/8 : len(s)-len(s)/8]
	sum := 0.0
	for _, x := range s {
		sum += float64(x)
	}
	return sum / float64(len(s))
}

// Step takes the duration of a training step, whether a save was begun in it, and whether one was under way at any
// moment of it.
func (i *Interval) Step(d time.Duration, begun, saving bool) {
	if i.saving && (begun || !saving) { // the save before is accounted for
		if len(i.quiet) > 0 {
			i.costs = remember(i.costs, i.spent-time.Duration(i.touched)*time.Duration(middle(i.quiet)))
		}
		i.saving = false
	}
	switch {
	case begun:
		i.saving, i.spent, i.touched = true, d, 1
	case saving:
		i.spent += d
		i.touched++
	}
	if begun || saving {
		i.unfinished++
		return
	}
	i.unfinished = 0
	i.quiet = remember(i.quiet, d)
}

// Saved takes the time from a save's first write until it was durable.
func (i *Interval) Saved(d time.Duration) { i.persist = remember(i.persist, d) }

// Steps is the interval: 1 saves every step. Until enough was measured it leaves a step without a save after each.
func (i *Interval) Steps() int {
	if len(i.quiet) < needed || len(i.costs) < needed || len(i.persist) < needed {
		return 2 + i.unfinished
	}
	step := max(1, middle(i.quiet))
	cost := max(0, middle(i.costs))
	k := math.Ceil((middle(i.persist) - cost) / step) // the next save does not meet this one
	k = max(k, math.Ceil(cost/(cmp.Or(max(i.Budget, 0), 0.035)*step)), 1)
	return int(min(k, 1<<20))
}
