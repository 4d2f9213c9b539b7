package stepcost

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// fit is a + b B + c B L + d B L^2, none of them below 0.
type fit struct {
	w   [4]float64
	err float64 // mean absolute relative error
	max float64 // worst relative error
}

func (f *fit) at(length, batch int) float64 {
	b, l := float64(batch), float64(length)
	return f.w[0] + b*(f.w[1]+l*(f.w[2]+l*f.w[3]))
}

// leastSquares fits y with relative errors; nil with fewer than 6 points or where nothing
// fits. Of the 15 choices of terms whose coefficients come out above 0 it takes the one with
// the smallest Bayesian information criterion (Schwarz, Estimating the dimension of a model,
// 1978): a term that the noise alone would bring in makes predictions worse, and one below 0
// would make them fall somewhere. The term a costs nothing there: every step has an overhead,
// and without it one batch size is as good as another.
func leastSquares(series [][]Trial, y func(Trial) float64) *fit {
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
		f := fitTerms(rows, y, terms)
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
func fitTerms(rows []Trial, y func(Trial) float64, terms int) *fit {
	// Columns are scaled to 1, or L^2 B would drown the constant.
	var lmax, bmax float64
	for _, r := range rows {
		lmax, bmax = max(lmax, float64(r.Length)), max(bmax, float64(r.Batch))
	}
	scale := [4]float64{1, bmax, bmax * lmax, bmax * lmax * lmax}
	f := &fit{}
	// The first fit weighs by the measurements, which favours those that came out too
	// small; the second by what the first predicts.
	for pass := range 2 {
		var a []float64
		y1 := mat.NewDense(len(rows), 1, nil)
		for i, r := range rows {
			v := y(r)
			if pass > 0 {
				v = f.at(r.Length, r.Batch)
			}
			if !(v > 0) {
				return nil
			}
			b, l := float64(r.Batch), float64(r.Length)
			for k, x := range [4]float64{1, b, b * l, b * l * l} {
				if terms>>k&1 == 1 {
					a = append(a, x/scale[k]/v)
				}
			}
			y1.Set(i, 0, y(r)/v)
		}
		var x mat.Dense
		if err := x.Solve(mat.NewDense(len(rows), len(a)/len(rows), a), y1); err != nil {
			return nil
		}
		n := 0
		for k := range f.w {
			if terms>>k&1 == 0 {
				continue
			}
			f.w[k] = x.At(n, 0) / scale[k]
			if n++; !(f.w[k] > 0) {
				return nil
			}
		}
	}
	return f
}
