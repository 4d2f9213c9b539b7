package profile

import (
	"math"
)

// curve is a non-decreasing piecewise-linear function of the samples. Knot 0 lies at
// zero samples; slope[i] holds from knot i on, and the last slope extrapolates.
type curve struct {
	x, y, slope []float64
	contiguous  bool // knots at 0, 1, 2, ...: the knot's number is the integer part
	byX, byY    index
}

// overheadShare is the least overhead at zero samples, as a share of the first measured
// time. The first segment may extrapolate to less.
const overheadShare = 0.01

// slopeShare is the least extrapolated slope, as a share of the average time per sample
// at the last point: after a flat end, samples still take time.
const slopeShare = 0.01

// newCurve returns the curve through non-decreasing points. With a measured floor it is
// flat from zero samples to the first point.
func newCurve(x, y []float64, floor bool) curve {
	n := len(x)
	c := curve{
		x:     append([]float64{0}, x...),
		y:     append([]float64{0}, y...),
		slope: make([]float64, n+1),
	}
	switch {
	case n == 1: // one point does not determine an overhead: proportional
	case floor:
		c.y[0] = y[0]
	default:
		first := (y[1] - y[0]) / (x[1] - x[0])
		c.y[0] = max(y[0]-first*x[0], overheadShare*y[0])
	}
	for i := range n {
		c.slope[i] = slopeBetween(c.x[i], c.y[i], c.x[i+1], c.y[i+1])
	}
	c.slope[n] = lastSlope(x, y)
	c.contiguous = true
	for i, v := range c.x {
		c.contiguous = c.contiguous && v == float64(i)
	}
	c.byX, c.byY = newIndex(c.x), newIndex(c.y)
	return c
}

// slopeBetween rounds towards zero, so that the segment does not end above its right knot
// and the curve is monotone to the last bit.
func slopeBetween(x0, y0, x1, y1 float64) float64 {
	s := (y1 - y0) / (x1 - x0)
	for s > 0 && y0+s*(x1-x0) > y1 {
		s = math.Nextafter(s, 0)
	}
	return s
}

// lastSlope is the slope beyond the last point: least squares over the upper half of the
// points, so that noise in the last pair does not decide.
func lastSlope(x, y []float64) float64 {
	n := len(x)
	average := y[n-1] / x[n-1]
	if n == 1 {
		return average
	}
	from := n - max(2, (n+1)/2)
	_, s := line(x[from:], y[from:])
	if !(s > 0) {
		_, s = line(x, y)
	}
	return max(s, slopeShare*average)
}

func (c *curve) last() float64 { return c.slope[len(c.slope)-1] }

func (c *curve) seconds(b float64) float64 {
	if len(c.x) == 0 {
		return 0
	}
	if !(b > 0) {
		return c.y[0]
	}
	i := len(c.x) - 1
	switch {
	case b >= c.x[i]:
	case c.contiguous:
		i = int(b)
	default:
		i = c.byX.find(c.x, b)
	}
	return c.y[i] + c.slope[i]*(b-c.x[i])
}

func (c *curve) samples(seconds float64) float64 {
	if len(c.x) == 0 || !(seconds >= c.y[0]) {
		return 0
	}
	last := len(c.x) - 1
	if seconds >= c.y[last] {
		return c.x[last] + (seconds-c.y[last])/c.slope[last]
	}
	i := c.byY.find(c.y, seconds)
	return min(c.x[i]+(seconds-c.y[i])/c.slope[i], c.x[i+1])
}

// index finds the last knot at or below a value, in constant time for evenly spread
// knots: at[k] is the last knot before bucket k, where the search starts.
type index struct {
	lo, scale float64
	at        []int32
}

func newIndex(knots []float64) index {
	n := len(knots)
	ix := index{lo: knots[0], at: make([]int32, 2*n)}
	if span := knots[n-1] - knots[0]; span > 0 {
		ix.scale = float64(2*n-1) / span
	}
	j := 0
	for k := range ix.at {
		for j+1 < n && ix.bucket(knots[j+1]) < k {
			j++
		}
		ix.at[k] = int32(j)
	}
	return ix
}

func (ix *index) bucket(v float64) int {
	return min(int((v-ix.lo)*ix.scale), len(ix.at)-1)
}

// find returns the last knot at or below v; knots[0] <= v < the last knot must hold.
func (ix *index) find(knots []float64, v float64) int {
	j := int(ix.at[ix.bucket(v)])
	for j+1 < len(knots) && knots[j+1] <= v {
		j++
	}
	return j
}

// isotonic replaces y by the non-decreasing sequence nearest to it in least squares and
// returns how many values it moved.
//
// Pool adjacent violators: Barlow, Bartholomew, Bremner, Brunk, "Statistical Inference
// under Order Restrictions" (1972), with equal weights.
func isotonic(y []float64) int {
	type block struct {
		sum float64
		n   int
	}
	blocks := make([]block, 0, len(y))
	for _, v := range y {
		b := block{v, 1}
		for len(blocks) > 0 {
			p := blocks[len(blocks)-1]
			if p.sum/float64(p.n) <= b.sum/float64(b.n) {
				break
			}
			b.sum, b.n = b.sum+p.sum, b.n+p.n
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	moved, i := 0, 0
	for _, b := range blocks {
		if b.n == 1 {
			i++
			continue
		}
		mean := b.sum / float64(b.n)
		for range b.n {
			if y[i] != mean {
				moved++
			}
			y[i] = mean
			i++
		}
	}
	// A mean is rounded: keep the order exact.
	for i := 1; i < len(y); i++ {
		y[i] = max(y[i], y[i-1])
	}
	return moved
}
