package stepcost

import (
	"math"
	"slices"

	"evenkeel/bucket/internal/input"
)

// trials are the trials of a table, and what they say about memory.
type trials struct {
	ran, out       []Trial
	source, target int  // nothing longer fits
	peak           *fit // nil: only what ran
	limit          float64

	table       Table // as given
	memoryLimit int64
}

// observe divides the trials of a table by whether they ran, and fits their peaks. limit is the memory in bytes; 0: the largest peak that ran.
func observe(t Table, limit int64, m polynomial) (trials, error) {
	c := trials{limit: float64(limit), table: t, memoryLimit: limit}
	largest := int64(0)
	for _, r := range t {
		if r.OutOfMemory {
			c.out = append(c.out, r)
			continue
		}
		c.ran = append(c.ran, r)
		c.source, c.target = max(c.source, r.Length), max(c.target, r.Target)
		largest = max(largest, r.PeakBytes)
	}
	if len(c.ran) == 0 {
		return c, input.Errorf("the table has no trial that ran: every one is out of memory")
	}
	if limit <= 0 {
		c.limit = float64(largest)
	}
	if !slices.ContainsFunc(c.ran, func(r Trial) bool { return r.PeakBytes <= 0 }) {
		if f := leastSquares(c.ran, m, func(r Trial) float64 { return float64(r.PeakBytes) }); f != nil && f.max <= 0.02 {
			c.peak = f
		}
	}
	return c, nil
}

// Source is the table and the memory limit that the model was made from.
func (c *trials) Source() (t Table, limit int64) { return c.table, c.memoryLimit }

// fitting is the largest batch of these lengths that fits into memory; 0 where none does or every trial is shorter.
func (c *trials) fitting(source, target int) int {
	if source > c.source || target > c.target {
		return 0
	}
	fits, bad := 0, math.MaxInt
	for _, r := range c.ran {
		if r.Length >= source && r.Target >= target && (c.limit == 0 || float64(r.PeakBytes) <= c.limit) {
			fits = max(fits, r.Batch)
		}
	}
	for _, r := range c.out {
		if r.Length <= source && r.Target <= target {
			bad = min(bad, r.Batch)
		}
	}
	if c.peak != nil {
		room := c.limit / (1 + c.peak.max)
		slope := c.peak.at(source, target, 1) - c.peak.at(source, target, 0)
		if n := math.Floor((room-c.peak.w[0])/slope + 1e-9); slope > 0 && n > float64(fits) {
			fits = int(min(n, MaxLength))
		}
	}
	return max(0, min(fits, bad-1))
}
