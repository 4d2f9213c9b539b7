package bound

import (
	"math"
	"slices"
)

// rounds is the number of prices tried for an interval.
const rounds = 24

// cut is the bound at some prices and its slope. The bound is concave in the prices, so no bound lies above any cut.
type cut struct {
	value     float64
	at, slope []float64 // by class: the price of all its devices together, and the slope there
}

// improve finds prices of devices with a large bound by cutting planes (Kelley, The cutting-plane method for solving convex
// programs, 1960). The next prices lie between the best prices so far and those where the cuts allow the largest bound.
func (b *bounder) improve(o *interval) {
	n := len(o.prices)
	parent, start := make([]float64, n), make([]float64, n)
	for c := range parent {
		parent[c], start[c] = o.prices[c]*b.count(c), b.start[c]*b.count(c)
	}
	best := make([]float64, n)
	var cuts []cut
	o.bound = 0
	for round := range rounds {
		at := make([]float64, n)
		switch round {
		case 0: // devices cost nothing
		case 1:
			copy(at, parent)
		case 2:
			copy(at, start)
		default:
			var most float64
			if at, most = peak(cuts, 4*b.aim); most <= o.bound*(1+1e-3) {
				return
			}
			for c := range at {
				at[c] = 0.7*at[c] + 0.3*best[c]
			}
		}
		prices := make([]float64, n)
		for c := range prices {
			prices[c] = at[c] / b.count(c)
		}
		value, slope := b.value(o, prices)
		if value > o.bound {
			o.bound, o.prices, best = value, prices, at
		}
		if o.bound >= b.aim || b.left < 0 {
			return
		}
		for c := range slope {
			slope[c] = slope[c]/b.count(c) - 1
		}
		cuts = append(cuts, cut{value, at, slope})
	}
}

// peak finds approximately where the cuts allow the largest value, in a box from 0 to size, and that value. The minimum of
// planes is concave, so it searches by golden sections, one coordinate inside the other.
func peak(cuts []cut, size float64) (best []float64, most float64) {
	n := len(cuts[0].at)
	x := make([]float64, n)
	best, most = make([]float64, n), math.Inf(-1)
	rest := make([][]float64, n+1) // by number of coordinates that are set: the value of each cut
	for c := range rest {
		rest[c] = make([]float64, len(cuts))
	}
	for i, k := range cuts {
		rest[0][i] = k.value
		for c, g := range k.slope {
			rest[0][i] -= g * k.at[c]
		}
	}
	var climb func(c int) float64
	climb = func(c int) float64 {
		if c == n {
			v := slices.Min(rest[n])
			if v > most {
				most = v
				copy(best, x)
			}
			return v
		}
		value := func(v float64) float64 {
			x[c] = v
			for i, k := range cuts {
				rest[c+1][i] = rest[c][i] + k.slope[c]*v
			}
			return climb(c + 1)
		}
		const golden = 0.6180339887498949
		low, high := 0.0, size
		a, b := high-golden*(high-low), low+golden*(high-low)
		at, bt := value(a), value(b)
		top := max(value(0), at, bt)
		for range sections[min(n, len(sections))-1] {
			if at < bt {
				low, a, at = a, b, bt
				b = low + golden*(high-low)
				bt = value(b)
				top = max(top, bt)
			} else {
				high, b, bt = b, a, at
				a = high - golden*(high-low)
				at = value(a)
				top = max(top, at)
			}
		}
		return top
	}
	climb(0)
	return best, most
}

// sections is the number of golden sections of each coordinate, by the number of coordinates.
var sections = [...]int{60, 30, 18, 8}
