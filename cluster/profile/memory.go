package profile

import (
	"math"
	"sort"
)

// memory predicts peak bytes from the points that have them.
type memory struct {
	x, y  []float64 // measured; y raised until it is non-decreasing
	slope float64   // bytes per sample beyond the last point
	r2    float64   // of the straight line through the measured points
}

func newMemory(points []Point) memory {
	var m memory
	for _, q := range points {
		if q.PeakBytes > 0 {
			m.x = append(m.x, float64(q.MicroBatch))
			m.y = append(m.y, float64(q.PeakBytes))
		}
	}
	n := len(m.x)
	switch n {
	case 0:
		return m
	case 1:
		m.slope = m.y[0] / m.x[0]
		return m
	}
	a, b := line(m.x, m.y)
	m.r2 = rSquared(m.x, m.y, func(x float64) float64 { return a + b*x })
	for i := 1; i < n; i++ {
		m.y[i] = max(m.y[i], m.y[i-1])
	}
	// Peak memory is a hinge: nearly flat while a fixed buffer dominates, then growing
	// with every sample. The upper half of the points has the slope that continues.
	from := n - max(2, (n+1)/2)
	_, m.slope = line(m.x[from:], m.y[from:])
	m.slope = max(m.slope, 0)
	return m
}

// peak needs at least one measured point.
func (m *memory) peak(b int) int64 {
	x, n := float64(b), len(m.x)
	var y float64
	switch {
	case n == 1:
		y = max(m.y[0], m.y[0]*(x/m.x[0]))
	case x <= m.x[0]:
		// Memory is a fixed part plus a growing one, so it cannot fall faster than in
		// proportion.
		first := (m.y[1] - m.y[0]) / (m.x[1] - m.x[0])
		y = max(m.y[0]*max(x, 0)/m.x[0], m.y[0]-first*(m.x[0]-x))
	case x >= m.x[n-1]:
		y = m.y[n-1] + m.slope*(x-m.x[n-1])
	default:
		i := sort.SearchFloat64s(m.x, x) // m.x[i-1] < x <= m.x[i]
		f := (x - m.x[i-1]) / (m.x[i] - m.x[i-1])
		y = min(m.y[i-1]+f*(m.y[i]-m.y[i-1]), m.y[i])
	}
	if y >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(y))
}

func (m *memory) limit(bytes int64) int {
	if len(m.x) == 0 {
		return NoLimit
	}
	fits := sort.Search(maxMicroBatch, func(i int) bool { return m.peak(i+1) > bytes })
	if fits == maxMicroBatch {
		return NoLimit
	}
	return fits
}
