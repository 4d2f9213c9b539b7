package stats

import (
	"math"
	"testing"
)

// With the rate 1/n all values count alike: by hand, 1, 2, 6 have the mean 3 and the variance 14/3.
func TestMoving(t *testing.T) {
	var m Moving
	for i, v := range []float64{1, 2, 6} {
		m.Add(v, 1/float64(i+1))
	}
	if math.Abs(m.Mean-3) > 1e-12 || math.Abs(m.Spread-14.0/3) > 1e-12 {
		t.Errorf("%+v", m)
	}
	// A tenth of what is new: the mean moves by .4, the variance to .9 (14/3 + .1 x 16).
	if m.Add(7, 0.1); math.Abs(m.Mean-3.4) > 1e-12 || math.Abs(m.Spread-0.9*(14.0/3+1.6)) > 1e-12 {
		t.Errorf("%+v", m)
	}
}
