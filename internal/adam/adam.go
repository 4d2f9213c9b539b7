// Package adam is Adam (Kingma and Ba 2015, algorithm 1) with the decoupled weight decay of AdamW (Loshchilov and
// Hutter 2019): the update of ddqn's learner and of train's optimizer. The caller keeps the moments and the powers of
// the betas, so that training can be resumed exactly.
package adam

import "math"

// Config are the constants of a training run.
type Config struct {
	Beta1, Beta2 float32 // shares of the moments that a step keeps
	Epsilon      float32
}

// Step is what a single update is made with.
type Step struct {
	Rate           float64 // learning rate
	Power1, Power2 float64 // the betas to the number of updates, this one included
	Scale          float32 // factor on the gradient, 1 where it is not clipped
	Keep           float32 // factor on the weights, 1 without weight decay
}

// Update changes weights, and the moments m and v, along the gradient. Every product is rounded before it is added, so
// that all builds give the same bits.
func (c Config) Update(weights, gradient, m, v []float32, s Step) {
	// The bias corrections of both moments, folded into the rate and into one factor under the root.
	alpha := float32(s.Rate / (1 - s.Power1))
	unbias := float32(1 / (1 - s.Power2))
	n := len(weights)
	gradient, m, v = gradient[:n], m[:n], v[:n]
	rest1, rest2 := 1-c.Beta1, 1-c.Beta2
	for i, g := range gradient {
		g *= s.Scale
		mi := float32(c.Beta1*m[i]) + float32(rest1*g)
		vi := float32(c.Beta2*v[i]) + float32(rest2*float32(g*g))
		m[i], v[i] = mi, vi
		root := float32(math.Sqrt(float64(float32(vi * unbias))))
		weights[i] = float32(weights[i]*s.Keep) - float32(alpha*mi)/(root+c.Epsilon)
	}
}
