package train

import (
	"errors"
	"fmt"
	"math"

	"evenkeel/internal/adam"
)

// Optimizer turns gradients into updates, one layer at a time: no update looks at another layer's gradients, so
// clipping by the norm of all of them is Config's business.
type Optimizer struct {
	Method Method
	// Rate is the learning rate, above 0.
	Rate float64
}

// Method is a rule of updates.
type Method string

// Methods. Momentum is Polyak's heavy ball; AdamW is Loshchilov and Hutter's "Decoupled Weight Decay Regularization"
// (2019). Weights do not decay.
const (
	SGD      Method = "sgd"
	Momentum Method = "momentum"
	AdamW    Method = "adamw"
)

// Constants of the methods: how much of the moments is kept in a step, and what keeps AdamW from dividing by 0.
const (
	momentum     = 0.9
	beta1, beta2 = 0.9, 0.999
	adamEpsilon  = 1e-8
)

// Moments is how many floats the method keeps per weight.
func (o Optimizer) Moments() int {
	switch o.Method {
	case Momentum:
		return 1
	case AdamW:
		return 2
	}
	return 0
}

// validate reports everything that is wrong; errors wrap ErrUsage.
func (o Optimizer) validate() error {
	var errs []error
	if o.Method != SGD && o.Method != Momentum && o.Method != AdamW {
		errs = append(errs, fmt.Errorf("%w: optimizer %q; want sgd, momentum or adamw", ErrUsage, o.Method))
	}
	if !(o.Rate > 0) || math.IsInf(o.Rate, 0) {
		errs = append(errs, fmt.Errorf("%w: learning rate %v; want more than 0", ErrUsage, o.Rate))
	}
	return errors.Join(errs...)
}

// Update changes weights w by their gradient g. Step counts from 1; moments are as many as Moments returns, zeros at the
// first step.
func (o Optimizer) Update(step uint64, w, g []float32, moments ...[]float32) {
	rate := float32(o.Rate)
	switch o.Method {
	case SGD:
		for i, d := range g {
			w[i] -= float32(rate * d)
		}
	case Momentum:
		m := moments[0]
		for i, d := range g {
			m[i] = float32(momentum*m[i]) + d
			w[i] -= float32(rate * m[i])
		}
	case AdamW:
		c := adam.Config{Beta1: beta1, Beta2: beta2, Epsilon: adamEpsilon}
		c.Update(w, g, moments[0], moments[1], adam.Step{
			Rate: o.Rate, Power1: math.Pow(beta1, float64(step)), Power2: math.Pow(beta2, float64(step)), Scale: 1, Keep: 1,
		})
	}
}
