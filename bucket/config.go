package bucket

import (
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// fill sets defaults and refuses what cannot be.
func (f *Config) fill() error {
	if err := f.fillSpeeds(); err != nil {
		return err
	}
	if err := f.checkPacked(); err != nil {
		return err
	}
	if f.Mixing == nil {
		m := DefaultMixing
		f.Mixing = &m
	}
	if m := *f.Mixing; !(m >= 0 && m <= 1) {
		return input.Errorf("mixing %v: must be 0 (sorted) to 1 (random order)", m)
	}
	if f.Overlong == "" {
		f.Overlong = Refuse
	}
	if all := []string{Refuse, Skip, Truncate}; !slices.Contains(all, f.Overlong) {
		return input.Errorf("overlong %q: must be one of %v", f.Overlong, all)
	}
	for _, c := range []struct {
		name       string
		value, top int
	}{
		{"micro batches", f.MicroBatches, 64}, {"max samples", f.MaxSamples, math.MaxInt}, {"max tokens", f.MaxTokens, math.MaxInt},
		{"pad to", f.PadTo, MaxLength}, {"batch multiple", f.BatchMultiple, MaxLength},
	} {
		if c.value < 0 || c.value > c.top {
			return input.Errorf("%s %d: must be 0 to %d", c.name, c.value, c.top)
		}
	}
	return nil
}

func (f *Config) fillSpeeds() error {
	if f.Ranks == 0 && len(f.Speeds) > 0 {
		f.Ranks = len(f.Speeds)
	}
	if f.Ranks < 1 || f.Ranks > 65536 {
		return input.Errorf("ranks %d: must be 1 to 65536", f.Ranks)
	}
	if f.Speeds == nil {
		f.Speeds = slices.Repeat([]float64{1}, f.Ranks)
	}
	if len(f.Speeds) != f.Ranks {
		return input.Errorf("speeds: %d of them for %d ranks", len(f.Speeds), f.Ranks)
	}
	for i, v := range f.Speeds {
		if !(v > 0) || math.IsInf(v, 0) {
			return input.Errorf("speeds: rank %d has %v; must be above 0", i, v)
		}
	}
	return nil
}

// knobs are what mixing turns.
type knobs struct {
	padding float64 // that the jitter of lengths may add, as a share of the work
	waiting float64 // that steps of unequal durations may add, as a share of the epoch
	slack   float64 // of the work for few anchor durations, with which batches of more lengths take equally long
	loose   bool    // batches are cut by true lengths: the longest of a group says little of it
	random  bool    // no order but chance
}

// knobsOf turns them all together. At 0 nothing moves; towards 1 the jitter grows without bound.
func knobsOf(mixing float64) knobs {
	if mixing == 0 {
		return knobs{}
	}
	odds := mixing / max(1e-9, 1-mixing)
	return knobs{.012 * odds, min(.5, .014*odds), min(.1, .012*odds), mixing > .8, mixing > .999}
}
