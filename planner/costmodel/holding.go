package costmodel

// Holding is what a device of a group holds of a layer: one part of the parameters, or two where experts are divided.
type Holding struct {
	parts     [2]part // of which count are there
	count     int
	weights   float64 // bytes, and
	gradients float64
	// The seconds of gathering, or scattering, all of the layer's weights and gradients once.
	gatherWeights, gatherGradients float64
}

// part is parameters of a layer that so many devices hold alike; share is its share of the whole layer.
type part struct{ parameters, copies, share float64 }

// Hold is what a device of a group holds of a layer at a tensor degree, in n replicas. gather is the seconds of gathering so many bytes of a
// device among all that hold them, and experts the same for the layer's experts.
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

// HoldOn is Hold on the i-th group of a stage under a strategy, over the links that its replicas have.
func (m *Model) HoldOn(groups []Group, i, l, samples int, y Strategy) Holding {
	n, tensor, _ := replicas(groups, samples, y, i)
	return m.Hold(l, tensor, n, func(bytes float64) float64 { return m.gather(groups, samples, y, i, bytes) },
		func(bytes float64) float64 { return m.gatherExperts(groups[i], tensor, bytes) })
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

// update is the seconds of an optimizer that takes so many for the whole layer.
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
