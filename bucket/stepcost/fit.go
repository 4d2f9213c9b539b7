package stepcost

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// fit is a + b B + c B L + d B L^2, none of them below 0; B L rounded up to whole tiles, if there are any.
type fit struct {
	w    [4]float64
	tile int     // tokens; 0: none
	err  float64 // mean absolute relative error
	max  float64 // worst relative error
}

func (f *fit) at(length, batch int) float64 {
	b, l := float64(batch), float64(length)
	if f.tile > 0 {
		return f.w[0] + b*f.w[1] + wholeTiles(length, batch, f.tile)*(f.w[2]+l*f.w[3])
	}
	return f.w[0] + b*(f.w[1]+l*(f.w[2]+l*f.w[3]))
}

// wholeTiles are a batch's tokens, rounded up to tiles of so many.
func wholeTiles(length, batch, tile int) float64 {
	return float64((batch*length + tile - 1) / tile * tile)
}

// inTiles is the fit of the tiles, powers of two from 256 to 16,384 tokens, that is nearest to the table: devices compute whole tiles of a
// matrix. nil where none halves the mean error of the fit without: noise alone does not.
func inTiles(series [][]Trial, plain *fit) *fit {
	var best *fit
	for tile := 256; tile <= 16384; tile *= 2 {
		if f := leastSquares(series, tile, func(r Trial) float64 { return r.Seconds }); f != nil && f.err < plain.err/2 && (best == nil || f.err < best.err) {
			best = f
		}
	}
	return best
}

// leastSquares fits y with relative errors; nil with fewer than 6 points or where nothing
// fits. Of the 15 choices of terms whose coefficients come out above 0 it takes the one with
// the smallest Bayesian information criterion (Schwarz, Estimating the dimension of a model,
// 1978): a term that the noise alone would bring in makes predictions worse, and one below 0
// would make them fall somewhere. The term a costs nothing there: every step has an overhead,
// and without it one batch size is as good as another.
func leastSquares(series [][]Trial, tile int, y func(Trial) float64) *fit {
	var rows []Trial
	for _, s := range series {
		rows = append(rows, s...)
	}
	if len(rows) < 6 {
		return nil
	}
	var best *fit
	least := math.Inf(1)
	for terms := 1; terms < 1<<4; terms++ {
		f := fitTerms(rows, tile, y, uint(terms))
		if f == nil {
			continue
		}
		squares, k := 0.0, 0
		for i := 1; i < len(f.w); i++ {
			k += terms >> i & 1
		}
		for _, r := range rows {
			e := f.at(r.Length, r.Batch)/y(r) - 1
			squares += e * e
			f.err += math.Abs(e) / float64(len(rows))
			f.max = max(f.max, math.Abs(e))
		}
		n := float64(len(rows))
		// Nobody measures closer than the floor: without it a perfect fit takes any term.
		if bic := n*math.Log(squares/n+1e-16) + float64(k)*math.Log(n); bic < least {
			best, least = f, bic
		}
	}
	return best
}

// fitTerms fits the terms whose bits are set; nil unless all come out above 0.
func fitTerms(rows []Trial, tile int, y func(Trial) float64, terms uint) *fit {
	// Columns are scaled to 1, or L^2 B would drown the constant.
	var lmax, bmax float64
	for _, r := range rows {
		lmax, bmax = max(lmax, float64(r.Length)), max(bmax, float64(r.Batch))
	}
	scale := [4]float64{1, bmax, bmax * lmax, bmax * lmax * lmax}
	f := &fit{tile: tile}
	column := func(r Trial, k int) float64 {
		b, l := float64(r.Batch), float64(r.Length)
		tokens := wholeTiles(r.Length, r.Batch, max(tile, 1))
		return [4]float64{1, b, tokens, tokens * l}[k] / scale[k]
	}
	if !relative(rows, y, terms, f.w[:], scale[:], column, func(r Trial) float64 { return f.at(r.Length, r.Batch) }) {
		return nil
	}
	return f
}

// relative fits the weights w of the terms whose bits are set, to y, by least squares of relative errors; false unless all come out above 0.
// column is a term of a trial over its scale, at what the weights predict of a trial.
func relative(rows []Trial, y func(Trial) float64, terms uint, w, scale []float64, column func(r Trial, k int) float64, at func(Trial) float64) bool {
	// The first fit weighs by the measurements, which favours those that came out too
	// small; the second by what the first predicts.
	for pass := range 2 {
		var a []float64
		right := mat.NewDense(len(rows), 1, nil)
		for i, r := range rows {
			v := y(r)
			if pass > 0 {
				v = at(r)
			}
			if !(v > 0) {
				return false
			}
			for k := range w {
				if terms>>k&1 == 1 {
					a = append(a, column(r, k)/v)
				}
			}
			right.Set(i, 0, y(r)/v)
		}
		var x mat.Dense
		if err := x.Solve(mat.NewDense(len(rows), len(a)/len(rows), a), right); err != nil {
			return false
		}
		n := 0
		for k := range w {
			if terms>>k&1 == 0 {
				continue
			}
			w[k] = x.At(n, 0) / scale[k]
			if n++; !(w[k] > 0) {
				return false
			}
		}
	}
	return true
}
