package layer

import "math"

// LayerNorm brings each position's Size floats to mean 0 and variance 1, then applies a gain and a bias (Ba, Kiros
// and Hinton, "Layer Normalization", 2016).
type LayerNorm struct{ Positions, Size int }

const normEpsilon = 1e-5

// Params are gain and bias.
func (l LayerNorm) Params() []Param {
	return []Param{{Name: "gain", Shape: []int{l.Size}, Mean: 1}, {Name: "bias", Shape: []int{l.Size}}}
}

// Sizes is Layer's.
func (l LayerNorm) Sizes() (in, out int) { return l.Positions * l.Size, l.Positions * l.Size }

// Memory is Layer's: a position's mean and reciprocal deviation are kept.
func (l LayerNorm) Memory(n int) (kept, scratch int) { return 2 * n * l.Positions, 0 }

// Forward is Layer's.
func (l LayerNorm) Forward(w *Call) {
	for r := range w.N * l.Positions {
		x, y := w.X[r*l.Size:][:l.Size], w.Y[r*l.Size:][:l.Size]
		var mean, variance float32
		for _, v := range x {
			mean += v
		}
		mean /= float32(l.Size)
		for _, v := range x {
			variance += float32((v - mean) * (v - mean))
		}
		scale := float32(1 / math.Sqrt(float64(variance)/float64(l.Size)+normEpsilon))
		w.Kept[2*r], w.Kept[2*r+1] = mean, scale
		for i, v := range x {
			y[i] = float32((v-mean)*scale*w.W[0][i]) + w.W[1][i]
		}
	}
}

// Backward is Layer's.
func (l LayerNorm) Backward(w *Call) {
	gain, dgain, dbias := w.W[0], w.DW[0], w.DW[1]
	clear(dgain)
	clear(dbias)
	for r := range w.N * l.Positions {
		x, dy := w.X[r*l.Size:][:l.Size], w.DY[r*l.Size:][:l.Size]
		mean, scale := w.Kept[2*r], w.Kept[2*r+1]
		var sum, along float32 // of the gradient at the normalized value, and of that times the value
		for i, g := range dy {
			z := (x[i] - mean) * scale
			dgain[i] += float32(g * z)
			dbias[i] += g
			sum += float32(g * gain[i])
			along += float32(g * gain[i] * z)
		}
		if w.DX == nil {
			continue
		}
		dx := w.DX[r*l.Size:][:l.Size]
		sum /= float32(l.Size)
		along /= float32(l.Size)
		for i, g := range dy {
			z := (x[i] - mean) * scale
			dx[i] = scale * (float32(g*gain[i]) - sum - float32(z*along))
		}
	}
}
