// Package stepcost predicts how long a training step takes and whether it fits into memory, from the length of its samples and its batch size. It
// learns that from a table of steps that were tried, as evenkeel.bucket.profile writes it: see the Example.
package stepcost

import (
	"math"
	"slices"

	"evenkeel/internal/badinput"
)

// Model predicts a step of one rank of speed 1 from a table of trials.
//
// Seconds are a least-squares fit of a + b B + c B L + d B L^2: by relative errors, without negative coefficients, and without terms that noise alone
// explains. So a larger batch takes no longer per sample.
//
// A batch fits into memory if a trial ran that was at least as long and as large. If peaks are known and follow the same formula within 2%, it also
// fits if the predicted peak plus the worst error of the fit is within the limit. It never fits if a trial that was no longer and no larger ran out of
// memory, or if it is longer than every trial.
type Model struct {
	ran, out []Trial
	longest  int // nothing longer fits
	time     *fit
	peak     *fit // nil: only what ran
	limit    float64

	table       Table // as given
	memoryLimit int64
}

// New prepares a table. Limit is the memory in bytes; 0 is the largest peak that ran.
func New(t Table, limit int64) (*Model, error) {
	c := &Model{limit: float64(limit), table: t, memoryLimit: limit}
	largest := int64(0)
	for _, r := range t {
		if r.OutOfMemory {
			c.out = append(c.out, r)
			continue
		}
		c.ran = append(c.ran, r)
		c.longest, largest = max(c.longest, r.Length), max(largest, r.PeakBytes)
	}
	if len(c.ran) == 0 {
		return c, badinput.Errorf("the table has no trial that ran: every one is out of memory")
	}
	if limit <= 0 {
		c.limit = float64(largest)
	}
	if c.time = leastSquares(c.ran, func(r Trial) float64 { return r.Seconds }); c.time == nil {
		return nil, badinput.Errorf("seconds of the %d trials that ran are too small to fit", len(c.ran))
	}
	if !slices.ContainsFunc(c.ran, func(r Trial) bool { return r.PeakBytes <= 0 }) && len(c.ran) > 5 {
		if f := leastSquares(c.ran, func(r Trial) float64 { return float64(r.PeakBytes) }); f != nil && f.max <= 0.02 {
			c.peak = f
		}
	}
	return c, nil
}

// Source is the table and the memory limit that the model was made from.
func (c *Model) Source() (t Table, limit int64) { return c.table, c.memoryLimit }

// Error is how far the fit is off the seconds of the trials that ran: the mean of the absolute relative errors, and the worst.
func (c *Model) Error() (mean, worst float64) { return c.time.err, c.time.max }

// Seconds is the predicted duration of a step with a batch of so many samples padded to length.
func (c *Model) Seconds(length, batch int) float64 { return c.time.at(length, batch) }

// Cap is the largest batch of that length that fits into memory; 0 where none does or every trial is shorter.
func (c *Model) Cap(length int) int {
	if length > c.longest {
		return 0
	}
	fits, bad := 0, math.MaxInt
	for _, r := range c.ran {
		if r.Length >= length && (c.limit == 0 || float64(r.PeakBytes) <= c.limit) {
			fits = max(fits, r.Batch)
		}
	}
	for _, r := range c.out {
		if r.Length <= length {
			bad = min(bad, r.Batch)
		}
	}
	if c.peak != nil {
		room, fixed := c.limit/(1+c.peak.max), c.peak.w[0]
		if n := math.Floor((room-fixed)/(c.peak.at(length, 1)-fixed) + 1e-9); n > float64(fits) {
			fits = int(min(n, MaxLength))
		}
	}
	return max(0, min(fits, bad-1))
}
