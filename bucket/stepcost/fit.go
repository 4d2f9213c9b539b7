package stepcost

import (
	"math"
	"math/bits"

	"gonum.org/v1/gonum/mat"
)

// fit is a + b B + c B L + d B L^2 for a batch of B samples of length L; no weight is below 0.
type fit struct {
	w   [4]float64
	err float64 // mean absolute relative error
	max float64 // worst relative error
}

func (f *fit) at(length, batch int) float64 {
	b, l := float64(batch), float64(length)
	return f.w[0] + b*(f.w[1]+l*(f.w[2]+l*f.w[3]))
}

func terms(r Trial) [4]float64 {
	b, l := float64(r.Batch), float64(r.Length)
	return [4]float64{1, b, b * l, b * l * l}
}

// leastSquares fits y with relative errors; nil: nothing fits. Of all sets of terms with positive weights it takes the one with the smallest Bayesian
// information criterion (Schwarz, Estimating the dimension of a model, 1978): a term that noise alone explains makes predictions worse, and a
// negative one makes them fall somewhere. The constant term is free, because every step has an overhead; without it all batch sizes would be
// equally good.
func leastSquares(rows []Trial, y func(Trial) float64) *fit {
	var best *fit
	least := math.Inf(1)
	for set := uint(1); set < 1<<4; set++ {
		f := &fit{}
		if bits.OnesCount(set) >= max(2, len(rows)) || !f.solve(rows, set, y) {
			continue
		}
		squares := 0.0
		for _, r := range rows {
			e := f.at(r.Length, r.Batch)/y(r) - 1
			squares += e * e
			f.err += math.Abs(e) / float64(len(rows))
			f.max = max(f.max, math.Abs(e))
		}
		n, k := float64(len(rows)), float64(bits.OnesCount(set>>1))
		// No measurement is more exact than the added constant. Without it a perfect fit would take any term.
		if bic := n*math.Log(squares/n+1e-16) + k*math.Log(n); bic < least {
			best, least = f, bic
		}
	}
	return best
}

// solve finds the weights of the terms whose bits are set; false: not all are positive.
func (f *fit) solve(rows []Trial, set uint, y func(Trial) float64) bool {
	scale := [4]float64{} // of each term, else the quadratic term would dominate the constant
	for _, r := range rows {
		for k, v := range terms(r) {
			scale[k] = max(scale[k], v)
		}
	}
	// The first fit weighs by the measurements, which favours those that are too small; the second weighs by the first fit.
	for pass := range 2 {
		var a []float64
		right := mat.NewDense(len(rows), 1, nil)
		for i, r := range rows {
			v := y(r)
			if pass > 0 {
				v = f.at(r.Length, r.Batch)
			}
			for k, x := range terms(r) {
				if set>>k&1 == 1 {
					a = append(a, x/scale[k]/v)
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
			if set>>k&1 == 1 {
				f.w[k] = x.At(n, 0) / scale[k]
				if n++; !(f.w[k] > 0) {
					return false
				}
			}
		}
	}
	return true
}
