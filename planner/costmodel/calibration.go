package costmodel

import "math"

// Calibration is what measured plans say of the devices beyond their layer profile. The zero value of a factor means 1, that of
// bytes and shares none: the formulas alone.
type Calibration struct {
	Compute map[string]float64 // factor on a device's times of computing and updating; a device without one: 1
	Links   float64            // factor on the times of what devices and stages send each other

	Activations  float64 // factor on the activations that the profile says
	Working      float64 // factor on the buffers of the layer that runs
	Context      float64 // bytes of a device beside the model: context, libraries, communicators, allocator
	ContextShare float64 // of its memory that Context takes at most; 0: no limit
	Margin       float64 // a plan fits if its prediction, this share larger, does
}

// Uncalibrated is what is assumed of devices of which no plan was measured. 24 measured plans on GH200 and on
// three kinds of RTX ask for it (docs/results/planner.md): a quarter of a device's memory, at most 5 GB, is taken by the context
// and what comes with it, and activations are a tenth larger than the layers' own.
func Uncalibrated() Calibration {
	return Calibration{Context: 5e9, ContextShare: 0.25, Activations: 1.1}
}

func (c Calibration) withDefaults() (Calibration, error) {
	for _, f := range []struct {
		name  string
		value *float64
	}{{"links", &c.Links}, {"activations", &c.Activations}, {"working", &c.Working}} {
		if *f.value == 0 {
			*f.value = 1
		}
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
