package bucket

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/mat"
)

// Cost predicts a step of one rank of speed 1.
type Cost interface {
	// Seconds of a batch of that many samples padded to length.
	Seconds(length, batch int) float64
	// Cap is the largest batch of that length that fits into memory; 0: none.
	Cap(length int) int
}

// TableCost is a Cost from a table of trials.
//
// Seconds are the least-squares fit of a + b B + c B L + d B L^2 (relative errors) where
// that predicts the table better than interpolation does (each inner point left out
// in turn), else bilinear interpolation in the smoothed table: isotonic over batch and
// over length, since neither a larger batch nor a longer sample takes less time, and a
// minimum over noisy points picks the luckiest (the winner's curse).
//
// Memory: a batch fits if a trial at least as long and as large ran. Where peaks are
// known and follow the same formula to 2%, also if the predicted peak, enlarged by the
// fit's worst error, is within the limit. It never fits if a trial at most as long and
// as large ran out of memory, nor beyond the longest length that ran.
type TableCost struct {
	lengths []int
	series  [][]Trial // per length, those that ran, smoothed
	steps   []step
	table   Table
	given   int64
	time    *fit // nil: interpolate
	peak    *fit // nil: only what ran
	limit   float64
}

// exact is the mean relative error below which the formula needs no comparison.
const exact = 0.005

// fit is a + b B + c B L + d B L^2.
type fit struct {
	w   [4]float64
	err float64 // mean absolute relative error
	max float64 // worst relative error
}

func (f *fit) at(length, batch int) float64 {
	b, l := float64(batch), float64(length)
	return f.w[0] + b*(f.w[1]+l*(f.w[2]+l*f.w[3]))
}

// NewCost prepares a table. Limit is the memory in bytes; 0 is the largest peak that ran.
func NewCost(t Table, limit int64) (*TableCost, error) {
	c := &TableCost{limit: float64(limit), table: t, given: limit}
	var largest float64
	peaks := true
	for _, r := range t {
		if r.OutOfMemory {
			continue
		}
		if n := len(c.lengths); n == 0 || c.lengths[n-1] != r.Length {
			c.lengths = append(c.lengths, r.Length)
			c.series = append(c.series, nil)
		}
		n := len(c.series) - 1
		c.series[n] = append(c.series[n], r)
		largest = max(largest, float64(r.PeakBytes))
		peaks = peaks && r.PeakBytes > 0
	}
	if len(c.lengths) == 0 {
		return nil, badf("the table has no trial that ran: every one is out of memory")
	}
	if limit <= 0 {
		c.limit = largest
	}
	f := leastSquares(c.series, func(r Trial) float64 { return r.Seconds })
	if f != nil && (f.err <= exact || f.err <= c.leftOut()) {
		c.time = f
	}
	if peaks {
		if p := leastSquares(c.series, func(r Trial) float64 { return float64(r.PeakBytes) }); p != nil && p.max <= 0.02 {
			c.peak = p
		}
	}
	c.memory(t)
	smooth(c.series)
	return c, nil
}

// Smoothed says how seconds are predicted: "fit" or "isotonic".
func (c *TableCost) Smoothed() string {
	if c.time != nil {
		return "fit"
	}
	return "isotonic"
}

// leastSquares fits y with relative errors; nil with fewer than 6 points or where the
// fit is not increasing.
func leastSquares(series [][]Trial, y func(Trial) float64) *fit {
	var rows []Trial
	for _, s := range series {
		rows = append(rows, s...)
	}
	if len(rows) < 6 {
		return nil
	}
	// Columns are scaled to 1, or L^2 B would drown the constant.
	var lmax, bmax float64
	for _, r := range rows {
		lmax, bmax = max(lmax, float64(r.Length)), max(bmax, float64(r.Batch))
	}
	a, one := mat.NewDense(len(rows), 4, nil), mat.NewDense(len(rows), 1, nil)
	for i, r := range rows {
		v, b, l := y(r), float64(r.Batch)/bmax, float64(r.Length)/lmax
		a.SetRow(i, []float64{1 / v, b / v, b * l / v, b * l * l / v})
		one.Set(i, 0, 1)
	}
	var x mat.Dense
	if err := x.Solve(a, one); err != nil {
		return nil
	}
	f := &fit{w: [4]float64{x.At(0, 0), x.At(1, 0) / bmax, x.At(2, 0) / bmax / lmax, x.At(3, 0) / bmax / lmax / lmax}}
	for _, r := range rows {
		p := f.at(r.Length, r.Batch)
		if !(p > 0) || f.at(r.Length, r.Batch+1) < p || f.at(r.Length+1, r.Batch) < p {
			return nil
		}
		e := math.Abs(p/y(r) - 1)
		f.err += e / float64(len(rows))
		f.max = max(f.max, e)
	}
	return f
}

// leftOut is the mean relative error of interpolating each inner point of a series from
// its neighbours; +Inf without inner points.
func (c *TableCost) leftOut() float64 {
	sum, n := 0.0, 0
	for _, s := range c.series {
		for i := 1; i+1 < len(s); i++ {
			u := float64(s[i].Batch-s[i-1].Batch) / float64(s[i+1].Batch-s[i-1].Batch)
			p := s[i-1].Seconds*(1-u) + s[i+1].Seconds*u
			sum += math.Abs(p/s[i].Seconds - 1)
			n++
		}
	}
	if n == 0 {
		return math.Inf(1)
	}
	return sum / float64(n)
}

// Seconds is Cost's.
func (c *TableCost) Seconds(length, batch int) float64 {
	if c.time != nil {
		// Beyond the table a fit may bend down; it never goes below its smallest step.
		return max(c.time.at(length, batch), 1e-12)
	}
	i := sort.SearchInts(c.lengths, length)
	if i == len(c.lengths) {
		return along(c.series[i-1], batch) * float64(length) / float64(c.lengths[i-1])
	}
	high := along(c.series[i], batch)
	if c.lengths[i] == length || i == 0 {
		return high
	}
	low := along(c.series[i-1], batch)
	u := float64(length-c.lengths[i-1]) / float64(c.lengths[i]-c.lengths[i-1])
	return low + u*max(high-low, 0)
}

// along interpolates over the batch; beyond the last point time grows with its slope per
// sample.
func along(s []Trial, batch int) float64 {
	i := sort.Search(len(s), func(k int) bool { return s[k].Batch >= batch })
	switch {
	case i < len(s) && s[i].Batch == batch, i == 0:
		return s[i].Seconds
	case i == len(s) && len(s) == 1:
		return s[0].Seconds * float64(batch) / float64(s[0].Batch)
	case i == len(s):
		i--
	}
	u := float64(batch-s[i-1].Batch) / float64(s[i].Batch-s[i-1].Batch)
	return s[i-1].Seconds + u*(s[i].Seconds-s[i-1].Seconds)
}

// Cap is Cost's.
func (c *TableCost) Cap(length int) int {
	if length > c.lengths[len(c.lengths)-1] {
		return 0 // nothing is known of longer samples
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

func (c *TableCost) memory(t Table) {
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
