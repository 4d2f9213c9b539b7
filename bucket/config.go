package bucket

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/internal/badinput"
)

// What to do with a sample that fits into no batch.
const (
	Refuse   = "error"
	Skip     = "skip"
	Truncate = "truncate"
)

// DefaultMixing makes an epoch about 1% longer.
const DefaultMixing = 0.01

// Config says what to plan. Zero values mean the default.
type Config struct {
	Ranks    int       `json:"ranks"`    // 1 to 65536; 0 with Speeds: as many as there are speeds
	Speeds   []float64 `json:"speeds"`   // per rank, above 0, relative; nil: all 1
	Mixing   *float64  `json:"mixing"`   // about what random order may add to the epoch: 0 (sorted) to 1; nil: DefaultMixing
	Overlong string    `json:"overlong"` // Refuse (default), Skip, Truncate

	// MicroBatches is the number of batches of the fastest rank in a step, at most 64; that of another rank is in proportion to its
	// speed, rounded, at least 1. A step may leave a rank idle. 0: the fewest, at most 8, with which rounding keeps few ranks from long samples.
	MicroBatches int `json:"micro_batches"`
	// MaxSamples and MaxTokens (with padding) limit a step over all ranks. They are divided among the batches of the step. 0: as many as
	// are efficient.
	MaxSamples int `json:"max_samples"`
	MaxTokens  int `json:"max_tokens"`
	PadTo      int `json:"pad_to"` // lengths are padded to multiples of this; 0 or 1: none

	Read *Reading `json:"read,omitempty"` // how the lengths were read from their file; nil: without options
}

// Reading says how a file of lengths is read.
type Reading struct {
	Column string  `json:"column,omitempty"` // the name of a CSV column, or its number from 1; two are joined by a comma; "": the only one
	Pair   string  `json:"pair,omitempty"`   // how two columns are combined: "sum" (or ""), "max" or "product", the patches of an image
	Scale  float64 `json:"scale,omitempty"`  // multiplies each number, which is then rounded up; 0 is 1, and then a fraction is an error
}

// complete sets defaults and refuses invalid settings.
func (f *Config) complete() error {
	if err := f.completeSpeeds(); err != nil {
		return err
	}
	m := DefaultMixing
	if f.Mixing != nil {
		m = *f.Mixing
	}
	if f.Mixing = &m; !(m >= 0 && m <= 1) {
		return badinput.Errorf("mixing %v: must be 0 (sorted) to 1, the part of an epoch that random order may add", m)
	}
	f.Overlong = cmp.Or(f.Overlong, Refuse)
	if all := []string{Refuse, Skip, Truncate}; !slices.Contains(all, f.Overlong) {
		return badinput.Errorf("overlong %q: must be one of %v", f.Overlong, all)
	}
	for _, c := range []struct {
		name       string
		value, top int
	}{
		{"micro batches", f.MicroBatches, 64}, {"max samples", f.MaxSamples, math.MaxInt}, {"max tokens", f.MaxTokens, math.MaxInt},
		{"pad to", f.PadTo, MaxLength},
	} {
		if c.value < 0 || c.value > c.top {
			return badinput.Errorf("%s %d: must be 0 to %d", c.name, c.value, c.top)
		}
	}
	return nil
}

func (f *Config) completeSpeeds() error {
	if f.Ranks == 0 && len(f.Speeds) > 0 {
		f.Ranks = len(f.Speeds)
	}
	if f.Ranks < 1 || f.Ranks > 65536 {
		return badinput.Errorf("ranks %d: must be 1 to 65536", f.Ranks)
	}
	if f.Speeds == nil {
		f.Speeds = slices.Repeat([]float64{1}, f.Ranks)
	}
	if len(f.Speeds) != f.Ranks {
		return badinput.Errorf("speeds: %d of them for %d ranks", len(f.Speeds), f.Ranks)
	}
	for i, v := range f.Speeds {
		if !(v > 0) || math.IsInf(v, 0) {
			return badinput.Errorf("speeds: rank %d has %v; must be above 0", i, v)
		}
	}
	return nil
}
