package stepcost

import (
	"math"
	"sort"
)

// Cap is the largest batch of that length that fits into memory; 0 where none does or every trial is shorter.
func (c *Model) Cap(length int) int {
	if length > c.steps[len(c.steps)-1].length {
		return 0
	}
	fits, bad := 0, math.MaxInt
	if i := sort.Search(len(c.steps), func(k int) bool { return c.steps[k].length >= length }); i < len(c.steps) {
		fits = c.steps[i].fits
	}
	if i := sort.Search(len(c.steps), func(k int) bool { return c.steps[k].length > length }); i > 0 {
		bad = c.steps[i-1].bad
	}
	if c.peak != nil {
		room := c.limit / (1 + c.peak.max)
		slope := c.peak.at(length, 1) - c.peak.at(length, 0)
		if n := math.Floor((room-c.peak.w[0])/slope + 1e-9); slope > 0 && n > float64(fits) {
			fits = int(min(n, MaxLength))
		}
	}
	return max(0, min(fits, bad-1))
}

// step is what the trials at one length say of memory: the largest batch that ran there
// or at a longer one, the smallest that did not there or at a shorter one.
type step struct{ length, fits, bad int }

func (c *Model) memory(t Table) {
	bad := math.MaxInt
	for _, r := range t {
		if n := len(c.steps); n == 0 || c.steps[n-1].length != r.Length {
			c.steps = append(c.steps, step{r.Length, 0, bad})
		}
		s := &c.steps[len(c.steps)-1]
		if r.OutOfMemory {
			bad = min(bad, r.Batch)
			s.bad = bad
		} else if c.limit == 0 || float64(r.PeakBytes) <= c.limit {
			s.fits = max(s.fits, r.Batch)
		}
	}
	for i := len(c.steps) - 2; i >= 0; i-- {
		c.steps[i].fits = max(c.steps[i].fits, c.steps[i+1].fits)
	}
}

// Longest is the longest sample of which at least one fits.
func (c *Model) Longest() int {
	return sort.Search(c.steps[len(c.steps)-1].length, func(l int) bool { return c.Cap(l+1) < 1 })
}
