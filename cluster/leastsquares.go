package cluster

// LeastSquares fits seconds = overhead + perSample*size to one node's rounds. The weight
// of a round falls by a constant factor with each newer one, as in Cannikin (Middleware
// 2024). It is for nodes whose profile is unknown.
type LeastSquares struct {
	forget          float64 // factor per measurement, (0, 1]
	n, x, y, xx, xy float64 // weighted sums
}

// NewLeastSquares returns an empty fit; forget is the weight a measurement keeps from
// one round to the next, in (0, 1].
func NewLeastSquares(forget float64) *LeastSquares { return &LeastSquares{forget: forget} }

// Add adds one round: size samples, at least 1, took seconds, above 0.
func (f *LeastSquares) Add(size, seconds float64) {
	f.n, f.x, f.y = f.forget*f.n+1, f.forget*f.x+size, f.forget*f.y+seconds
	f.xx, f.xy = f.forget*f.xx+size*size, f.forget*f.xy+size*seconds
}

// Performance is the fitted line, false before the first Add. Where the sizes hardly
// differ the overhead cannot be fitted: then the given one is used, and the line goes
// through the mean.
func (f *LeastSquares) Performance(overhead float64) (Performance, bool) {
	if f.n == 0 {
		return Performance{}, false
	}
	mx, my := f.x/f.n, f.y/f.n
	if sxx := f.xx/f.n - mx*mx; sxx > 1e-3*mx*mx {
		slope := (f.xy/f.n - mx*my) / sxx
		if at := my - slope*mx; slope > 0 && at >= -1e-9*my { // rounding may leave it just below 0
			return Performance{Overhead: max(at, 0), PerSample: slope}, true
		}
	}
	return Performance{Overhead: overhead, PerSample: max(my-overhead, 0.01*my) / mx}, true
}
