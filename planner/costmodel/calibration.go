package costmodel

import (
	"cmp"
	"math"
)

// Calibration corrects the formulas by measured plans. A factor of 0 means 1.
type Calibration struct {
	Compute map[string]float64 // factor on a device's times of computing and updating; a device without a factor: 1
	Links   float64            // factor on the times of all transfers

	Activations  float64 // factor on the activations of the profile
	Gradients    float64 // factor on the gradients that a device holds
	Working      float64 // factor on the buffers of the running layer
	Context      float64 // bytes of a device that the model does not use: context, libraries, communicators, allocator
	ContextShare float64 // the largest share of a device's memory that Context takes; 0: no limit
	Margin       float64 // share of the predicted memory that must be free besides
}

// Uncalibrated is the calibration of devices without measured plans. It follows from measured plans (docs/results/planner.md): the
// context and its libraries take a quarter of a device's memory, at most 5 GB, activations are a tenth larger than in the profile,
// and gradients have two copies: one to exchange them, one that the optimizer takes to update (foreach of torch.optim).
func Uncalibrated() Calibration {
	return Calibration{Context: 5e9, ContextShare: 0.25, Activations: 1.1, Gradients: 3}
}

func (c Calibration) withDefaults() (Calibration, error) {
	for _, f := range []struct {
		name  string
		value *float64
	}{{"links", &c.Links}, {"activations", &c.Activations}, {"gradients", &c.Gradients}, {"working", &c.Working}} {
		*f.value = cmp.Or(*f.value, 1)
		if !(*f.value > 0) || math.IsInf(*f.value, 0) {
			return c, badOption("calibration: %s %v; must be above 0", f.name, *f.value)
		}
	}
	for device, v := range c.Compute {
		if !(v > 0) || math.IsInf(v, 0) {
			return c, badOption("calibration: compute of %s %v; must be above 0", device, v)
		}
	}
	if !(c.Context >= 0) || math.IsInf(c.Context, 0) || !(c.ContextShare >= 0 && c.ContextShare < 1) || !(c.Margin >= 0) || math.IsInf(c.Margin, 0) {
		return c, badOption("calibration: context %v bytes, context share %v, margin %v; want at least 0, and a share below 1", c.Context, c.ContextShare, c.Margin)
	}
	return c, nil
}
