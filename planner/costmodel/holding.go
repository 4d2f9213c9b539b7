package costmodel

// Holding is what a device holds of a layer: one part of the parameters, or two if experts are divided.
type Holding struct {
	parts     [2]part // the first count of them
	count     int
	weights   float64 // bytes
	gradients float64 // bytes
	// Seconds to gather, or scatter, the weights and the gradients of the layer once.
	gatherWeights, gatherGradients float64
	start                          float64 // seconds that each of these takes besides
}

// part is parameters of a layer, of which several devices hold copies; share is its share of the whole layer.
type part struct{ parameters, copies, share float64 }

// Hold is what a device holds of a layer at a tensor degree, in n replicas. gather is the seconds to gather a number of bytes of
// a device among all devices that hold the same, experts the same for the layer's experts.
func (m *Model) Hold(l, tensor, n int, gather, experts func(bytes float64) float64) Holding {
	layer, s := &m.profile.Layers[l], m.options.States
	copies := float64(n * m.spread.Context)
	h := Holding{parts: [2]part{{layer.Parameters / float64(tensor), copies, 1}}, count: 1}
	if m.Divides(l) {
		own, e := layer.ExpertParameters/layer.Parameters, float64(m.spread.Experts)
		h.count, h.parts = 2, [2]part{{(layer.Parameters - layer.ExpertParameters) / float64(tensor), copies, 1 - own}, {layer.ExpertParameters / float64(tensor) / e, copies / e, own / e}}
	}
	for i, p := range h.parts[:h.count] {
		w, g := p.parameters*s.Weights, p.parameters*s.Gradients
		h.weights += w
		h.gradients += g
		if i == 1 {
			gather = experts
		}
		h.gatherWeights += gather(w)
		h.gatherGradients += gather(g)
	}
	return h
}

// HoldOn is Hold for the i-th group of a stage under a strategy, over the links of its replicas.
func (m *Model) HoldOn(groups []Group, i, l, samples int, y Strategy) Holding {
	n, tensor, _ := replicas(groups, samples, y, i)
	h := m.Hold(l, tensor, n, func(bytes float64) float64 { return m.gather(groups, samples, y, i, bytes) },
		func(bytes float64) float64 { return m.gatherExperts(groups[i], tensor, bytes) })
	for _, p := range h.parts[:h.count] {
		if p.copies > 1 && p.parameters > 0 {
			h.start += m.start(groups)
		}
	}
	return h
}

// states are the bytes of weights, gradients and optimizer that a device holds under a sharding.
func (h *Holding) states(s States, y Sharding) float64 {
	sum := 0.0
	for _, p := range h.parts[:h.count] {
		x := s
		switch y {
		case Optimizer:
			x.Optimizer /= p.copies
		case Gradients:
			x = States{s.Weights, s.Gradients / p.copies, s.Optimizer / p.copies}
		case Full:
			x = States{s.Weights / p.copies, s.Gradients / p.copies, s.Optimizer / p.copies}
		}
		sum += p.parameters * (x.Weights + x.Gradients + x.Optimizer)
	}
	return sum
}

// update is the seconds of the optimizer, which takes the given seconds for the whole layer.
func (h *Holding) update(seconds float64, y Sharding) float64 {
	sum := 0.0
	for _, p := range h.parts[:h.count] {
		if y == Replicated {
			sum += seconds * p.share
		} else {
			sum += seconds * p.share / p.copies
		}
	}
	return sum
}
