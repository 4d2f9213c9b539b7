package stepcost

import (
	"math"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// PairModel predicts a step of samples whose sources and targets are padded apart, on one rank of speed 1.
//
// Seconds are the least-squares fit of a + B (b + c S + d T + e S^2 + f T^2 + g S T) for a batch of B samples of source length S and target
// length T: what the layers of an encoder and a decoder, attention within each and attention of one to the other take. Relative errors, no
// coefficient below 0, no term that the noise alone would bring in. So seconds rise with S, T and B.
//
// Memory: a batch fits if a trial ran that was as large in both lengths and the batch. Where peaks are known and follow the same formula to
// 2%, also if the predicted peak, enlarged by the fit's worst error, is within the limit. It never fits if a trial that was as small in all
// three ran out of memory, nor if it is longer than every trial in either length.
type PairModel struct {
	time, peak     *pairFit // peak nil: only what ran
	ran, out       []Trial
	source, target int // the longest of the trials that ran
	limit          float64

	table       Table // as given
	memoryLimit int64
}

// NewPair prepares a table of trials with two lengths. Limit is the memory in bytes; 0 is the largest peak that ran.
func NewPair(t Table, limit int64) (*PairModel, error) {
	if len(t) > 0 && !t.Pairs() {
		return nil, input.Errorf("the table is of samples with one length: profile with --pair apart")
	}
	c := &PairModel{limit: float64(limit), table: t, memoryLimit: limit}
	var largest float64
	peaks := true
	for _, r := range t {
		if r.OutOfMemory {
			c.out = append(c.out, r)
			continue
		}
		c.ran = append(c.ran, r)
		c.source, c.target = max(c.source, r.Length), max(c.target, r.Target)
		largest = max(largest, float64(r.PeakBytes))
		peaks = peaks && r.PeakBytes > 0
	}
	if len(c.ran) == 0 {
		return nil, input.Errorf("the table has no trial that ran: every one is out of memory")
	}
	if limit <= 0 {
		c.limit = largest
	}
	if c.time = fitPairs(c.ran, func(r Trial) float64 { return r.Seconds }); c.time == nil {
		return nil, input.Errorf("the table has %d trials that ran: a fit of both lengths needs at least %d that differ in source, target and batch", len(c.ran), leastPairs)
	}
	if peaks {
		if f := fitPairs(c.ran, func(r Trial) float64 { return float64(r.PeakBytes) }); f != nil && f.worst <= 0.02 {
			c.peak = f
		}
	}
	return c, nil
}

// Source is the table and the memory limit that the model was made from.
func (c *PairModel) Source() (t Table, limit int64) { return c.table, c.memoryLimit }

// Seconds is the predicted duration of a step with a batch of so many samples padded to these lengths.
func (c *PairModel) Seconds(source, target, batch int) float64 {
	return c.time.at(source, target, batch)
}

// Cap is the largest batch of these lengths that fits into memory; 0 where none does or every trial is shorter.
func (c *PairModel) Cap(source, target int) int {
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
		room := c.limit / (1 + c.peak.worst)
		slope := c.peak.at(source, target, 1) - c.peak.at(source, target, 0)
		if n := math.Floor((room-c.peak.w[0])/slope + 1e-9); slope > 0 && n > float64(fits) {
			fits = int(min(n, MaxLength))
		}
	}
	return max(0, min(fits, bad-1))
}
