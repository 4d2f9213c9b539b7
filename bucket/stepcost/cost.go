package stepcost

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"evenkeel/bucket/internal/input"
)

// Model predicts a step of one rank of speed 1 from a table of trials.
//
// Seconds are a least-squares fit of a + b B + c B L + d B L^2: by relative errors, without negative coefficients, and without terms that
// noise alone explains. If the fit is not close, and a fit with tokens rounded up to whole tiles has less than half its error, that one is
// used. If interpolation predicts the table better than the fit by more than chance (tested by leaving out each inner point), seconds are
// interpolated, bilinearly, in the table smoothed to be isotonic over batch and length: a larger batch or a longer sample takes no less time,
// and a minimum over noisy points would pick the luckiest one (the winner's curse).
//
// A batch fits into memory if a trial ran that was at least as long and as large. If peaks are known and follow the same formula within 2%,
// it also fits if the predicted peak plus the worst error of the fit is within the limit. It never fits if a trial that was no longer and no
// larger ran out of memory, or if it is longer than every trial.
type Model struct {
	trials
	lengths []int
	series  [][]Trial // per length, those that ran, smoothed
	time    *fit      // nil: interpolate
}

// closeFit is the largest worst error, relative, of a fit that is used without comparing it with interpolation.
const closeFit = 0.005

// New prepares a table. Limit is the memory in bytes; 0 is the largest peak that ran.
func New(t Table, limit int64) (*Model, error) {
	if t.Pairs() {
		return nil, input.Errorf("the table is of samples with two lengths: plan two columns by --pair apart")
	}
	known, err := observe(t, limit, oneLength(0))
	if err != nil {
		return nil, err
	}
	c := &Model{trials: known}
	c.source = t[len(t)-1].Length // even if it ran out of memory: a smaller batch may fit
	for _, r := range c.ran {
		if n := len(c.lengths); n == 0 || c.lengths[n-1] != r.Length {
			c.lengths = append(c.lengths, r.Length)
			c.series = append(c.series, nil)
		}
		n := len(c.series) - 1
		c.series[n] = append(c.series[n], r)
	}
	f := leastSquares(c.ran, oneLength(0), seconds)
	if f != nil && f.max > closeFit {
		f = cmp.Or(inTiles(c.ran, f), f)
	}
	if f != nil && (f.max <= closeFit || !c.better(f)) {
		c.time = f
	}
	smooth(c.series)
	return c, nil
}

// Cap is the largest batch of that length that fits into memory; 0 where none does or every trial is shorter.
func (c *Model) Cap(length int) int { return c.fitting(length, 0) }

// Smoothed says how seconds are predicted: "fit" or "isotonic".
func (c *Model) Smoothed() string {
	if c.time != nil {
		return "fit"
	}
	return "isotonic"
}

// Tile is the tokens of a tile, where a fit of whole tiles predicts; 0: none.
func (c *Model) Tile() int {
	if c.time == nil {
		return 0
	}
	return c.time.tile
}

// better says whether interpolating each inner point of a series from its neighbours is better than the fit by more than chance. If the fit
// were true, the errors of interpolation would be larger than its residuals by a factor of sqrt(1 + u^2 + (1-u)^2), because both neighbours
// are noisy, too. The mean of n absolute errors scatters by about 0.75/sqrt(n); 2.5 times that counts as more than chance.
func (c *Model) better(f *fit) bool {
	ratio, n := 0.0, 0.0
	for _, s := range c.series {
		for i := 1; i+1 < len(s); i++ {
			u := float64(s[i].Batch-s[i-1].Batch) / float64(s[i+1].Batch-s[i-1].Batch)
			p := s[i-1].Seconds*(1-u) + s[i+1].Seconds*u
			ratio += math.Abs(p/s[i].Seconds-1) / math.Sqrt(1+u*u+(1-u)*(1-u))
			n++
		}
	}
	return n > 0 && ratio/n < f.err*(1-2.5*.75/math.Sqrt(n))
}

// Seconds is the predicted duration of a step with a batch of so many samples padded to length.
func (c *Model) Seconds(length, batch int) float64 {
	if c.time != nil {
		// Beyond the table a fit may fall.
		return max(c.time.at(length, 0, batch), 1e-12)
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
	return low + u*(high-low)
}

// along interpolates over the batch. Beyond the last point time goes on with the last slope. Below the first point it follows the line
// through the first two points, but is at least proportional to the batch.
func along(s []Trial, batch int) float64 {
	i := sort.Search(len(s), func(k int) bool { return s[k].Batch >= batch })
	switch {
	case i < len(s) && s[i].Batch == batch:
		return s[i].Seconds
	case len(s) == 1 && i == 0:
		return s[0].Seconds // as nothing else is known
	case len(s) == 1:
		return s[0].Seconds * float64(batch) / float64(s[0].Batch)
	}
	least := 0.0
	if i == 0 {
		least = s[0].Seconds * float64(batch) / float64(s[0].Batch)
	}
	i = min(max(i, 1), len(s)-1)
	u := float64(batch-s[i-1].Batch) / float64(s[i].Batch-s[i-1].Batch)
	return max(least, s[i-1].Seconds+u*(s[i].Seconds-s[i-1].Seconds))
}

// Breaks are the batch sizes, rising, between which Seconds of that length is a straight line in the batch; none where it
// is one throughout.
func (c *Model) Breaks(length int) []int {
	var out []int
	if c.time != nil {
		tile, top := c.Tile(), c.Cap(length)
		for tokens := tile; tile > 0 && tokens/length <= top; tokens += tile {
			out = append(out, max(1, tokens/length))
		}
		return slices.Compact(out)
	}
	i := sort.SearchInts(c.lengths, length)
	for k := max(i-1, 0); k <= min(i, len(c.lengths)-1); k++ {
		for _, r := range c.series[k] {
			out = append(out, r.Batch)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
