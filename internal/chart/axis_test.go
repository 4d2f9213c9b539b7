package chart

import (
	"math"
	"slices"
	"testing"
)

func TestAxisMapsValues(t *testing.T) {
	for _, c := range []struct {
		a     axis
		v, at float64
	}{
		{axis{lo: 2, hi: 4, from: 100, to: 0}, 2, 100},
		{axis{lo: 2, hi: 4, from: 100, to: 0}, 3.5, 25},
		{axis{lo: 1, hi: 1000, from: 0, to: 30, log: true}, 10, 10},
		{axis{lo: -0.5, hi: 1.5, from: 20, to: 60}, 1, 50},
	} {
		if got := c.a.at(c.v); math.Abs(got-c.at) > 1e-9 {
			t.Errorf("%+v: %g is at %g, want %g", c.a, c.v, got, c.at)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		a    axis
		want []string
	}{
		{axis{lo: 0, hi: 1.02}, []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}},
		{axis{lo: -3, hi: 61}, []string{"0", "10", "20", "30", "40", "50", "60"}},
		{axis{lo: 1, hi: 3e6}, []string{"500000", "1e+06", "1.5e+06", "2e+06", "2.5e+06", "3e+06"}},
		{axis{lo: 1, hi: 60, log: true}, []string{"1", "2", "5", "10", "20", "50"}},
		{axis{lo: 1e-3, hi: 1e4, log: true}, []string{"0.001", "0.01", "0.1", "1", "10", "100", "1000", "10000"}},
	} {
		var got []string
		for _, k := range c.a.ticks() {
			got = append(got, k.label)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: ticks %q, want %q", c.a, got, c.want)
		}
	}
}

// Every value of every series lies between the ends of its axis.
func TestScalesHoldAllValues(t *testing.T) {
	for _, p := range gallery().Panels {
		x, y := p.scales()
		for _, s := range p.Series {
			for _, v := range slices.Concat(s.Low, s.High) {
				if v < y.lo || v > y.hi {
					t.Errorf("panel %q: %g is outside of y %g to %g", p.Title, v, y.lo, y.hi)
				}
			}
			if s.Kind == Boxes || s.Kind == Bars {
				continue
			}
			for i := range s.X {
				if s.X[i] < x.lo || s.X[i] > x.hi || len(s.Y) > 0 && (s.Y[i] < y.lo || s.Y[i] > y.hi) {
					t.Errorf("panel %q: a point of %q is outside", p.Title, s.Name)
				}
			}
		}
	}
}
