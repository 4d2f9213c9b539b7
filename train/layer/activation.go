package layer

import "math"

// ReLU is max(0, x), on Size floats of a sample.
type ReLU struct{ Size int }

// Params is Layer's: none.
func (ReLU) Params() []Param { return nil }

// Sizes is Layer's.
func (r ReLU) Sizes() (in, out int) { return r.Size, r.Size }

// Memory is Layer's.
func (ReLU) Memory(int) (kept, scratch int) { return 0, 0 }

// Forward is Layer's.
func (ReLU) Forward(w *Call) {
	for i, x := range w.X {
		w.Y[i] = max(0, x)
	}
}

// Backward is Layer's.
func (ReLU) Backward(w *Call) {
	if w.DX == nil {
		return
	}
	for i, x := range w.X {
		if x > 0 {
			w.DX[i] = w.DY[i]
		} else {
			w.DX[i] = 0
		}
	}
}

// GELU is the Gaussian error linear unit with the tanh approximation (Hendrycks and Gimpel, "Gaussian Error Linear
// Units", 2016), on Size floats of a sample.
type GELU struct{ Size int }

// Params is Layer's: none.
func (GELU) Params() []Param { return nil }

// Sizes is Layer's.
func (g GELU) Sizes() (in, out int) { return g.Size, g.Size }

// Memory is Layer's: the tanh is kept, which is what takes long.
func (g GELU) Memory(n int) (kept, scratch int) { return n * g.Size, 0 }

const (
	geluScale = 0.7978845608028654 // sqrt(2 / pi)
	geluCubic = 0.044715
)

// Forward is Layer's.
func (GELU) Forward(w *Call) {
	for i, x := range w.X {
		t := tanh(geluScale * (x + float32(geluCubic*x*x*x)))
		w.Kept[i] = t
		w.Y[i] = 0.5 * x * (1 + t)
	}
}

// Backward is Layer's.
func (GELU) Backward(w *Call) {
	if w.DX == nil {
		return
	}
	for i, x := range w.X {
		t := w.Kept[i]
		slope := float32(0.5*(1+t)) + float32(0.5*x*(1-float32(t*t))*geluScale*(1+float32(3*geluCubic*x*x)))
		w.DX[i] = w.DY[i] * slope
	}
}

// tanh differs from math.Tanh in that no build fuses its operations.
func tanh(x float32) float32 {
	e := math.Exp(-2 * math.Abs(float64(x)))
	return float32(math.Copysign((1-e)/(1+e), float64(x)))
}
