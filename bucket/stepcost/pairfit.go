package stepcost

import (
	"math"
	"math/bits"
)

// pairTerms is how many terms the formula of two lengths has.
const pairTerms = 7

// leastPairs is the least number of trials to fit.
const leastPairs = pairTerms + 1

// pairFit is a + B (b + c S + d T + e S^2 + f T^2 + g S T), no coefficient below 0.
type pairFit struct {
	w     [pairTerms]float64
	worst float64 // relative error
}

func (f *pairFit) at(source, target, batch int) float64 {
	s, t := float64(source), float64(target)
	return f.w[0] + float64(batch)*(f.w[1]+s*(f.w[2]+s*f.w[4]+t*f.w[6])+t*(f.w[3]+t*f.w[5]))
}

// fitPairs fits y with relative errors; nil with fewer than leastPairs trials or where nothing fits. Of all choices of terms whose coefficients
// come out above 0 it takes the one with the smallest Bayesian information criterion, as leastSquares does; a costs nothing there.
func fitPairs(rows []Trial, y func(Trial) float64) *pairFit {
	if len(rows) < leastPairs {
		return nil
	}
	var best *pairFit
	least := math.Inf(1)
	for terms := uint(1); terms < 1<<pairTerms; terms++ {
		f := fitPairTerms(rows, y, terms)
		if f == nil {
			continue
		}
		squares := 0.0
		for _, r := range rows {
			e := f.at(r.Length, r.Target, r.Batch)/y(r) - 1
			squares += e * e
			f.worst = max(f.worst, math.Abs(e))
		}
		n, k := float64(len(rows)), float64(bits.OnesCount(terms>>1))
		if bic := n*math.Log(squares/n+1e-16) + k*math.Log(n); bic < least {
			best, least = f, bic
		}
	}
	return best
}

// fitPairTerms fits the terms whose bits are set; nil unless all come out above 0.
func fitPairTerms(rows []Trial, y func(Trial) float64, terms uint) *pairFit {
	columns := func(r Trial) [pairTerms]float64 {
		b, s, t := float64(r.Batch), float64(r.Length), float64(r.Target)
		return [pairTerms]float64{1, b, b * s, b * t, b * s * s, b * t * t, b * s * t}
	}
	var scale [pairTerms]float64 // columns are scaled to 1, or the squares would drown the constant
	for _, r := range rows {
		for k, x := range columns(r) {
			scale[k] = max(scale[k], x)
		}
	}
	f := &pairFit{}
	column := func(r Trial, k int) float64 { return columns(r)[k] / scale[k] }
	if !relative(rows, y, terms, f.w[:], scale[:], column, func(r Trial) float64 { return f.at(r.Length, r.Target, r.Batch) }) {
		return nil
	}
	return f
}
