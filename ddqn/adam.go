package ddqn

import "math"

// adam is Adam (Kingma and Ba 2015, algorithm 1) over one flat slice of weights, with the gradient's global norm
// clipped first (Pascanu et al. 2013). Gorgonia's solver hides its moments, without which training cannot be
// resumed exactly, and clips element by element.
type adam struct {
	beta1, beta2, epsilon, clip float32
	m, v                        []float32 // first and second moments
	power1, power2              float64   // beta1 and beta2 to the number of updates
}

func newAdam(c LearnerConfig, n int) *adam {
	return &adam{
		beta1: float32(c.Beta1), beta2: float32(c.Beta2), epsilon: float32(c.Epsilon), clip: float32(c.ClipNorm),
		m: make([]float32, n), v: make([]float32, n), power1: 1, power2: 1,
	}
}

// norm is the Euclidean norm.
func norm(g []float32) float64 {
	var a, b, c, d float64 // four sums, because one would wait for itself
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
func (o *adam) step(weights, gradient []float32, norm, rate float64) {
	scale := float32(1)
	if norm > float64(o.clip) {
		scale = float32(float64(o.clip) / norm)
	}
	o.power1 = float64(o.power1 * float64(o.beta1))
	o.power2 = float64(o.power2 * float64(o.beta2))
	// The bias corrections of both moments, folded into the rate and into one factor under the root.
	alpha := float32(rate / (1 - o.power1))
	unbias := float32(1 / (1 - o.power2))
	n := len(weights)
	gradient, m, v := gradient[:n], o.m[:n], o.v[:n]
	keep1, keep2 := 1-o.beta1, 1-o.beta2
	for i, g := range gradient {
		g *= scale
		mi := float32(o.beta1*m[i]) + float32(keep1*g)
		vi := float32(o.beta2*v[i]) + float32(keep2*float32(g*g))
		m[i], v[i] = mi, vi
		root := float32(math.Sqrt(float64(float32(vi * unbias))))
		weights[i] -= float32(alpha*mi) / (root + o.epsilon)
	}
}
