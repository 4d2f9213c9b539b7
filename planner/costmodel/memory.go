package costmodel

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/planner/search"
)

// limit is the bytes of a device of a class that a plan may fill, including the reserve.
func (m *Model) limit(class int) float64 {
	return m.topology.Classes[class].Memory * m.options.Memory / (1 + m.options.Calibration.Margin)
}

// reserve is the bytes of a device of a class that are not for layers: the option, and what training takes besides the model.
func (m *Model) reserve(class int) float64 {
	c := m.options.Calibration
	if c.ContextShare == 0 {
		return m.options.Reserve + c.Context
	}
	return m.options.Reserve + min(c.Context, c.ContextShare*m.topology.Classes[class].Memory)
}

// Room is the bytes of a device of a class that layers may fill.
func (m *Model) Room(class int) float64 { return m.limit(class) - m.reserve(class) }

// Holds says whether so many bytes of layers fit in a device of a class.
func (m *Model) Holds(class int, bytes float64) bool {
	return bytes+m.reserve(class) <= m.limit(class)
}

// checkLayersFit reports a layer that fits no device under any strategy. It assumes the best case: a micro-batch of one sample, and
// shards over all devices of all classes.
func (m *Model) checkLayersFit() error {
	devices := m.Count()
	divided := 1.0 // experts, at most
	for _, s := range m.Spreads() {
		divided = max(divided, float64(s.Experts))
	}
	for i, l := range m.profile.Layers {
		l.Parameters -= l.ExpertParameters * (1 - 1/divided)
		fits, least, nearest := false, math.Inf(1), ""
		for c, class := range m.topology.Classes {
			for _, t := range m.tensors[c] {
				s := m.options.States
				need := l.Parameters/float64(t)*(s.Weights+s.Gradients+s.Optimizer/float64(devices-class.Count+class.Count/t)) + m.reserve(c)
				if slices.Contains(m.options.Shardings, Full) {
					need = l.Parameters/float64(t)*s.Weights + m.reserve(c)
				}
				fits = fits || need <= m.limit(c)
				if need-m.limit(c) < least {
					least = need - m.limit(c)
					nearest = fmt.Sprintf("%s at tensor degree %d: %s, %s of it beside the model, of %s", class.Device, t, Bytes(need), Bytes(m.reserve(c)), Bytes(m.limit(c)))
				}
			}
		}
		if !fits {
			return fmt.Errorf("%w: layer %d (%s) is larger than every device; nearest is %s; profile a higher tensor degree, allow more of the memory or add larger devices", search.ErrInfeasible, i, l.Name, nearest)
		}
	}
	return nil
}

// Bytes formats a number of bytes.
func Bytes(b float64) string {
	if b < 1<<30 {
		return fmt.Sprintf("%.3g MiB", b/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", b/(1<<30))
}
