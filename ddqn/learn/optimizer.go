package learn

import (
	"math"

	"evenkeel/internal/adam"
)

// optimizer is Adam over one flat slice of weights, with the gradient's global norm clipped first (Pascanu et al.
// 2013). Gorgonia's solver hides its moments, without which training cannot be resumed exactly, and clips element by
// element.
type optimizer struct {
	adam           adam.Config
	clip           float32   // largest norm of the gradient
	m, v           []float32 // first and second moments
	power1, power2 float64   // beta1 and beta2 to the number of updates
}

// The decay rates of the moments are those of the paper. With its epsilon, 1e-8, weights with rare gradients would jump.
const (
	beta1    = 0.9
	beta2    = 0.999
	epsilon  = 1e-5
	clipNorm = 10 // cuts only outliers when rewards are of order 1
)

func newOptimizer(n int) *optimizer {
	return &optimizer{
		adam: adam.Config{Beta1: beta1, Beta2: beta2, Epsilon: epsilon}, clip: clipNorm,
		m: make([]float32, n), v: make([]float32, n), power1: 1, power2: 1,
	}
}

// norm is the Euclidean norm.
func norm(g []float32) float64 {
	var a, b, c, d float64 // four sums, because the additions of one would wait for each other
	for ; len(g) >= 4; g = g[4:] {
		a += float64(float64(g[0]) * float64(g[0]))
		b += float64(float64(g[1]) * float64(g[1]))
		c += float64(float64(g[2]) * float64(g[2]))
		d += float64(float64(g[3]) * float64(g[3]))
	}
	for _, x := range g {
		a += float64(float64(x) * float64(x))
	}
	return math.Sqrt((a + b) + (c + d))
}

// step changes the weights along the gradient, whose norm is given.
func (o *optimizer) step(weights, gradient []float32, norm, rate float64) {
	scale := float32(1)
	if norm > float64(o.clip) {
		scale = float32(float64(o.clip) / norm)
	}
	o.power1 = float64(o.power1 * float64(o.adam.Beta1))
	o.power2 = float64(o.power2 * float64(o.adam.Beta2))
	o.adam.Update(weights, gradient, o.m, o.v, adam.Step{Rate: rate, Power1: o.power1, Power2: o.power2, Scale: scale, Keep: 1})
}
