package train

import (
	"cmp"
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
	// Momentum of the Momentum method, from 0 to below 1; 0: 0.9.
	Momentum float64
	// Beta1 and Beta2 of AdamW are how much of the moments is kept in a step, from 0 to below 1; 0: 0.9 and 0.999.
	Beta1, Beta2 float64
	// WeightDecay is the share of each weight that a step takes away, times Rate; it is decoupled from the gradient
	// in all methods. 0: none.
	WeightDecay float64
}

// Method is a rule of updates.
type Method string

// Methods. Momentum is Polyak's heavy ball; AdamW is Loshchilov and Hutter's "Decoupled Weight Decay Regularization"
// (2019).
const (
	SGD      Method = "sgd"
	Momentum Method = "momentum"
	AdamW    Method = "adamw"
)

const adamEpsilon = 1e-8

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
	for _, s := range []struct {
		name  string
		value float64
	}{{"momentum", o.Momentum}, {"beta1", o.Beta1}, {"beta2", o.Beta2}, {"weight decay", o.WeightDecay}} {
		if !(s.value >= 0 && s.value < 1) {
			errs = append(errs, fmt.Errorf("%w: %s %v; want from 0 to below 1", ErrUsage, s.name, s.value))
		}
	}
	return errors.Join(errs...)
}

// Update changes weights w by their gradient g. Step counts from 1; moments are as many as Moments returns, zeros at the
// first step.
func (o Optimizer) Update(step uint64, w, g []float32, moments ...[]float32) {
	rate, decay := float32(o.Rate), 1-float32(o.Rate*o.WeightDecay)
	switch o.Method {
	case SGD:
		for i, d := range g {
			w[i] = float32(w[i]*decay) - float32(rate*d)
		}
	case Momentum:
		m, keep := moments[0], float32(cmp.Or(o.Momentum, 0.9))
		for i, d := range g {
			m[i] = float32(keep*m[i]) + d
			w[i] = float32(w[i]*decay) - float32(rate*m[i])
		}
	case AdamW:
		b1, b2 := cmp.Or(o.Beta1, 0.9), cmp.Or(o.Beta2, 0.999)
		c := adam.Config{Beta1: float32(b1), Beta2: float32(b2), Epsilon: adamEpsilon}
		c.Update(w, g, moments[0], moments[1], adam.Step{
			Rate: o.Rate, Power1: math.Pow(b1, float64(step)), Power2: math.Pow(b2, float64(step)), Scale: 1, Keep: decay,
		})
	}
}
