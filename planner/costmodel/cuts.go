package costmodel

import (
	"math"
	"slices"
)

// rounds is how many prices of an interval are tried.
const rounds = 24

// cut is a bound at some prices and how it changes with them. No prices have a bound above any cut.
type cut struct {
	value     float64
	at, slope []float64 // of the price of all devices of a class together
}

// improve climbs to prices of devices with a large bound by cutting planes (Kelley, 1960): the next prices lie between the best and
// those where the cuts allow most.
func (b *bounder) improve(o *interval) {
	n := len(o.prices)
	count := func(c int) float64 { return float64(b.topology.Classes[c].Count) }
	parent := make([]float64, n)
	start := make([]float64, n)
	for c := range parent {
		parent[c], start[c] = o.prices[c]*count(c), b.start[c]*count(c)
	}
	best := make([]float64, n)
	var cuts []cut
	o.bound = 0
	for round := range rounds {
		at := make([]float64, n)
		switch round {
		case 0: // without prices
		case 1:
			copy(at, parent)
		case 2:
			copy(at, start)
		default:
			var most float64
			if at, most = peak(cuts, best, 4*b.best); most <= o.bound*(1+1e-3) {
				return
			}
			for c := range at {
				at[c] = 0.7*at[c] + 0.3*best[c]
			}
		}
		prices := make([]float64, n)
		for c := range prices {
			prices[c] = at[c] / count(c)
		}
		value, slope := b.value(o, prices)
		if value > o.bound {
			o.bound, o.prices, best = value, prices, at
		}
		if o.bound >= b.best || b.left < 0 {
			return
		}
		for c := range slope {
			slope[c] = slope[c]/count(c) - 1
		}
		cuts = append(cuts, cut{value, at, slope})
	}
}

// peak is about where cuts allow the largest value, in a box from 0 to a size, and that value.
func peak(cuts []cut, start []float64, size float64) (best []float64, most float64) {
	least := func(x []float64) (v float64, k int) {
		v = math.Inf(1)
		for i := range cuts {
			u := cuts[i].value
			for c := range x {
				u += cuts[i].slope[c] * (x[c] - cuts[i].at[c])
			}
			if u < v {
				v, k = u, i
			}
		}
		return v, k
	}
	x := slices.Clone(start)
	best, most = slices.Clone(x), math.Inf(-1)
	step := size / 4
	for range 60 {
		from := most
		for range 8 {
			v, k := least(x)
			if v > most {
				most = v
				copy(best, x)
			}
			norm := 0.0
			for c, g := range cuts[k].slope {
				if x[c] > 0 || g > 0 {
					norm += g * g
				}
			}
			if norm < 1e-18 {
				return best, most
			}
			for c, g := range cuts[k].slope {
				x[c] = min(size, max(0, x[c]+step*g/math.Sqrt(norm)))
			}
		}
		if most <= from {
			step *= 0.7
			copy(x, best)
		}
	}
	return best, most
}
