package stepcost

import (
	"math"
	"math/bits"

	"gonum.org/v1/gonum/mat"
)

// polynomial is a sum of terms of a trial's lengths and batch, each times a weight.
type polynomial struct {
	terms int
	least int // number of trials to fit
	tile  int // tokens are rounded up to multiples of this; 0: they are not
	// scale is the size of each term, by which it is divided for the fit; else the quadratic term would dominate the constant.
	scale func(rows []Trial) []float64
	term  func(r Trial, k int) float64
	value func(w []float64, length, target, batch int) float64
}

// oneLength is a + b B + c B L + d B L^2; B L rounded up to whole tiles, if there are any.
func oneLength(tile int) polynomial {
	tokens := func(length, batch int) float64 { return float64((batch*length + tile - 1) / tile * tile) }
	value := func(w []float64, length, _, batch int) float64 {
		b, l := float64(batch), float64(length)
		return w[0] + b*w[1] + tokens(length, batch)*(w[2]+l*w[3])
	}
	if tile == 0 {
		tokens = func(length, batch int) float64 { return float64(batch * length) }
		value = func(w []float64, length, _, batch int) float64 {
			b, l := float64(batch), float64(length)
			return w[0] + b*(w[1]+l*(w[2]+l*w[3]))
		}
	}
	return polynomial{
		terms: 4, least: 6, tile: tile, value: value,
		scale: func(rows []Trial) []float64 {
			var lmax, bmax float64
			for _, r := range rows {
				lmax, bmax = max(lmax, float64(r.Length)), max(bmax, float64(r.Batch))
			}
			return []float64{1, bmax, bmax * lmax, bmax * lmax * lmax}
		},
		term: func(r Trial, k int) float64 {
			n := tokens(r.Length, r.Batch)
			return [4]float64{1, float64(r.Batch), n, n * float64(r.Length)}[k]
		},
	}
}

// twoLengths is a + B (b + c S + d T + e S^2 + f T^2 + g S T).
func twoLengths() polynomial {
	term := func(r Trial, k int) float64 {
		b, s, t := float64(r.Batch), float64(r.Length), float64(r.Target)
		return [7]float64{1, b, b * s, b * t, b * s * s, b * t * t, b * s * t}[k]
	}
	return polynomial{
		terms: 7, least: 8, term: term,
		scale: func(rows []Trial) []float64 {
			scale := make([]float64, 7)
			for _, r := range rows {
				for k := range scale {
					scale[k] = max(scale[k], term(r, k))
				}
			}
			return scale
		},
		value: func(w []float64, length, target, batch int) float64 {
			s, t := float64(length), float64(target)
			return w[0] + float64(batch)*(w[1]+s*(w[2]+s*w[4]+t*w[6])+t*(w[3]+t*w[5]))
		},
	}
}

// fit is a polynomial with its weights, none below 0.
type fit struct {
	polynomial
	w   []float64
	err float64 // mean absolute relative error
	max float64 // worst relative error
}

func (f *fit) at(length, target, batch int) float64 { return f.value(f.w, length, target, batch) }

// inTiles is the best fit with tiles of 256 to 16,384 tokens, powers of two: devices compute whole tiles of a matrix. nil: no fit halves the
// mean error of the fit without tiles, as noise alone would not.
func inTiles(rows []Trial, plain *fit) *fit {
	var best *fit
	for tile := 256; tile <= 16384; tile *= 2 {
		if f := leastSquares(rows, oneLength(tile), seconds); f != nil && f.err < plain.err/2 && (best == nil || f.err < best.err) {
			best = f
		}
	}
	return best
}

func seconds(r Trial) float64 { return r.Seconds }

// leastSquares fits y with relative errors; nil: there are too few points, or nothing fits. Of all sets of terms with positive weights it
// takes the one with the smallest Bayesian information criterion (Schwarz, Estimating the dimension of a model, 1978): a term that noise
// alone explains makes predictions worse, and a negative one makes them fall somewhere. The constant term is free, because every step has an
// overhead; without it all batch sizes would be equally good.
func leastSquares(rows []Trial, m polynomial, y func(Trial) float64) *fit {
	if len(rows) < m.least {
		return nil
	}
	scale := m.scale(rows)
	var best *fit
	least := math.Inf(1)
	for terms := uint(1); terms < 1<<m.terms; terms++ {
		f := &fit{polynomial: m, w: make([]float64, m.terms)}
		if !f.solve(rows, scale, terms, y) {
			continue
		}
		squares := 0.0
		for _, r := range rows {
			e := f.at(r.Length, r.Target, r.Batch)/y(r) - 1
			squares += e * e
			f.err += math.Abs(e) / float64(len(rows))
			f.max = max(f.max, math.Abs(e))
		}
		n, k := float64(len(rows)), float64(bits.OnesCount(terms>>1))
		// No measurement is more exact than the added constant. Without it a perfect fit would take any term.
		if bic := n*math.Log(squares/n+1e-16) + k*math.Log(n); bic < least {
			best, least = f, bic
		}
	}
	return best
}

// solve finds the weights of the terms whose bits are set; false: not all are positive.
func (f *fit) solve(rows []Trial, scale []float64, terms uint, y func(Trial) float64) bool {
	// The first fit weighs by the measurements, which favours those that are too small; the second weighs by the first fit.
	for pass := range 2 {
		var a []float64
		right := mat.NewDense(len(rows), 1, nil)
		for i, r := range rows {
			v := y(r)
			if pass > 0 {
				v = f.at(r.Length, r.Target, r.Batch)
			}
			if !(v > 0) {
				return false
			}
			for k := range f.w {
				if terms>>k&1 == 1 {
					a = append(a, f.term(r, k)/scale[k]/v)
				}
			}
			right.Set(i, 0, y(r)/v)
		}
		var x mat.Dense
		if err := x.Solve(mat.NewDense(len(rows), len(a)/len(rows), a), right); err != nil {
			return false
		}
		n := 0
		for k := range f.w {
			if terms>>k&1 == 0 {
				continue
			}
			f.w[k] = x.At(n, 0) / scale[k]
			if n++; !(f.w[k] > 0) {
				return false
			}
		}
	}
	return true
}
