package costmodel

import (
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// Spread is what replicas of a plan divide among devices beside tensors, alike in the whole plan. At most one of the two is above 1.
//
// Context parallelism (Liu et al., Ring Attention, arXiv 2310.01889) divides a sample's sequence: Context devices of a machine, a unit, are
// priced as one that computes that many times faster, and whose devices pass the keys and values of attention around.
//
// Expert parallelism (Lepikhin et al., GShard, arXiv 2006.16668) divides the experts of a layer among Experts replicas, a block, which send
// their samples to each other. Other layers are trained as without.
type Spread struct{ Context, Experts int }

// Spread is that of all plans that the model prices.
func (m *Model) Spread() Spread { return m.spread }

// In is the model of plans of a spread. Its classes are of units, and so are the devices of stages.
func (m *Model) In(s Spread) *Model {
	if s == m.spread {
		return m
	}
	return m.with(func(c *Model) {
		c.spread, c.topology, c.tensors = s, m.topology.Units(s.Context), slices.Clone(m.tensors)
		for class, of := range c.tensors {
			c.tensors[class] = slices.DeleteFunc(slices.Clone(of), func(t int) bool {
				_, ok := c.degree(class, t)
				return !ok || s.Context > 1 && c.topology.Classes[class].PerMachine%t != 0
			})
		}
	})
}

// Spreads are all that plans may have by the options.
func (m *Model) Spreads() []Spread {
	all := []Spread{}
	contexts, experts := m.options.Contexts, m.options.Experts
	if len(contexts) == 0 {
		contexts = m.contexts()
	}
	if len(experts) == 0 {
		experts = m.expertDegrees()
	}
	for _, c := range contexts {
		for _, e := range experts {
			if c == 1 || e == 1 {
				all = append(all, Spread{c, e})
			}
		}
	}
	return all
}

// contexts are the degrees of context parallelism that some machine has devices for.
func (m *Model) contexts() []int {
	all := []int{1}
	for _, l := range m.profile.Layers {
		if l.Context > 0 {
			for _, per := range m.perMachine {
				all = append(all, Divisors(per)...)
			}
			break
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// expertDegrees are the degrees of expert parallelism that divide the experts of every layer that has any, and replicas of some class.
func (m *Model) expertDegrees() []int {
	common, most := 0, 0
	for _, l := range m.profile.Layers {
		for a, b := l.Experts, common; a > 0; a, b = b%a, a {
			common = a
		}
	}
	for _, k := range m.topology.Classes {
		most = max(most, k.Count)
	}
	return slices.DeleteFunc(Divisors(max(1, common)), func(e int) bool { return e > most })
}

// WhyNot says why no plan can have a spread, of which one is 1 as plans have it; "": some may.
func (m *Model) WhyNot(s Spread) string {
	contexts, experts := m.contexts(), m.expertDegrees()
	switch {
	case !slices.Contains(contexts, s.Context) && len(contexts) == 1:
		if !slices.ContainsFunc(m.profile.Layers, func(l layerprofile.Layer) bool { return l.Context > 0 }) {
			return fmt.Sprintf("context %d, but the layer profile says of no layer what context parallelism passes around (context_bytes)", s.Context)
		}
		return fmt.Sprintf("context %d, but machines have one device each", s.Context)
	case !slices.Contains(contexts, s.Context):
		return fmt.Sprintf("context %d; machines can have %v", s.Context, contexts)
	case !slices.Contains(experts, s.Experts) && len(experts) == 1:
		return fmt.Sprintf("experts %d, but the layer profile has no layers with experts to divide (experts, expert_parameters, expert_bytes)", s.Experts)
	case !slices.Contains(experts, s.Experts):
		return fmt.Sprintf("experts %d; the layers' experts can be divided by %v", s.Experts, experts)
	}
	return ""
}

// checkSpreads reports degrees in the options that no plan can have.
func (m *Model) checkSpreads() error {
	for _, c := range m.options.Contexts {
		if why := m.WhyNot(Spread{c, 1}); why != "" {
			return badOption("%s", why)
		}
	}
	for _, e := range m.options.Experts {
		if why := m.WhyNot(Spread{1, e}); why != "" {
			return badOption("%s", why)
		}
	}
	if len(m.Spreads()) == 0 {
		return badOption("context %v with experts %v; a plan has one of the two above 1, so one of the lists must have 1", m.options.Contexts, m.options.Experts)
	}
	return nil
}

// divides says whether a layer's experts are divided.
func (m *Model) Divides(l int) bool { return m.spread.Experts > 1 && m.profile.Layers[l].Experts > 0 }

// cannot says why a layer cannot lie on a group of a stage at a tensor degree; "": it can.
func (m *Model) Cannot(groups []Group, g Group, l, tensor int) string {
	per := m.topology.Classes[g.Class].PerMachine
	if m.wide(g.Class, tensor) {
		switch {
		case len(groups) > 1:
			return fmt.Sprintf("a tensor degree of %d takes several machines, so the stage must have one group; it has %d", tensor, len(groups))
		case g.First%per != 0:
			return fmt.Sprintf("a tensor degree of %d takes whole machines, but the group begins within one", tensor)
		}
	}
	if !m.Divides(l) {
		return ""
	}
	e := m.spread.Experts // divides the layer's, as those of all layers
	switch machines, _ := m.Place(g); {
	case len(groups) > 1:
		return fmt.Sprintf("its experts are divided among %d replicas, so the stage must have one group; it has %d", e, len(groups))
	case g.Devices()%(tensor*e) != 0:
		return fmt.Sprintf("its experts are divided among %d replicas; that must divide the %d replicas of the stage", e, g.Devices()/tensor)
	case m.wide(g.Class, tensor) || machines > 1 && (per%tensor != 0 || !Within(g.First, g.Devices(), tensor*e, per)):
		return fmt.Sprintf("its experts are divided among %d replicas of %d devices; these must lie within a machine of %d, or take whole machines", e, tensor, per)
	}
	return ""
}

// mixesWide says whether a replica that takes several machines shares a stage with groups of other classes.
func (m *Model) mixesWide(groups []Group) bool {
	return len(groups) > 1 && slices.ContainsFunc(groups, func(g Group) bool { return m.wide(g.Class, g.Tensor) })
}

// Holding is what a device of a group holds of a layer: one part of the parameters, or two where experts are divided.
type Holding struct {
	portions  [2]portion // of which count are there
	count     int
	weights   float64 // bytes, and
	gradients float64
	// GatherWeights and GatherGradients are the seconds of gathering, or scattering, all of the layer's weights and gradients once.
	GatherWeights, GatherGradients float64
}

// portion is parameters of a layer that so many devices have alike.
type portion struct{ parameters, copies, share float64 }

// hold is what devices hold of a layer at a tensor degree in n replicas. gather and experts are the seconds of gathering so many bytes of a
// device among all that have them, of the layer and of its experts.
func (m *Model) Hold(l, tensor, n int, gather, experts func(bytes float64) float64) Holding {
	layer, s := &m.profile.Layers[l], m.options.States
	copies := float64(n * m.spread.Context)
	h := Holding{portions: [2]portion{{layer.Parameters / float64(tensor), copies, 1}}, count: 1}
	if m.Divides(l) {
		own, e := layer.ExpertParameters/layer.Parameters, float64(m.spread.Experts)
		h.count, h.portions = 2, [2]portion{{(layer.Parameters - layer.ExpertParameters) / float64(tensor), copies, 1 - own}, {layer.ExpertParameters / float64(tensor) / e, copies / e, own / e}}
	}
	for i, p := range h.portions[:h.count] {
		w, g := p.parameters*s.Weights, p.parameters*s.Gradients
		h.weights += w
		h.gradients += g
		if i == 1 {
			gather = experts
		}
		h.GatherWeights += gather(w)
		h.GatherGradients += gather(g)
	}
	return h
}

// states are the bytes of weights, gradients and optimizer that a device holds under a sharding.
func (h *Holding) States(s States, y Sharding) float64 {
	sum := 0.0
	for _, p := range h.portions[:h.count] {
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
func (h *Holding) Update(seconds float64, y Sharding) float64 {
	sum := 0.0
	for _, p := range h.portions[:h.count] {
		if y == Replicated {
			sum += seconds * p.share
		} else {
			sum += seconds * p.share / p.copies
		}
	}
	return sum
}

// ring is the seconds in which the devices of a unit pass the keys and values of a replica's share around, once.
func (m *Model) Ring(class, l, tensor, share int) float64 {
	c := float64(m.spread.Context)
	return m.options.Calibration.Links * (c - 1) * m.inside[class].Seconds(m.profile.Layers[l].Context*float64(share)/float64(tensor)/c)
}

// toAll is the seconds in which the replicas of a block send what each has of a share to each other's experts, one way: within machines, and
// over a machine's link what its devices have for each of the others.
func (m *Model) ToAll(g Group, l, tensor, share int) float64 {
	if !m.Divides(l) {
		return 0
	}
	e := float64(m.spread.Experts)
	bytes := m.profile.Layers[l].ExpertBytes * float64(share) / float64(tensor) / e // to each of the others
	per := m.topology.Classes[g.Class].PerMachine
	if machines, _ := m.Place(g); machines == 1 || tensor*m.spread.Experts <= per {
		return m.options.Calibration.Links * (e - 1) * m.inside[g.Class].Seconds(bytes)
	}
	here := float64(per / tensor) // replicas of a machine
	return m.options.Calibration.Links * ((here-1)*m.inside[g.Class].Seconds(bytes) + (e/here-1)*m.between[g.Class][g.Class].Seconds(float64(per)*here*bytes))
}

// gatherExperts is gather for what so many bytes of a device are of experts: among the replicas that have the same, one of each block.
func (m *Model) GatherExperts(g Group, tensor int, bytes float64) float64 {
	e := m.spread.Experts
	same := float64(g.Devices() / tensor / e)
	if same <= 1 || bytes == 0 {
		return 0
	}
	links := m.options.Calibration.Links
	machines, most := m.Place(g)
	if machines == 1 {
		return links * (same - 1) * m.inside[g.Class].Seconds(bytes/same)
	}
	replicas := most / tensor // of a machine
	here, apart := 1.0, same  // that have the same experts in a machine, and machines that these are in
	if replicas >= e {
		here, apart = float64(replicas/e), float64(machines)
	}
	out := m.between[g.Class][g.Class]
	whole := bytes * float64(tensor*min(e, replicas)) // the rings of all devices of a machine that have others
	return links * min((same-1)*out.Seconds(whole/same), (here-1)*m.inside[g.Class].Seconds(bytes/here)+(apart-1)*out.Seconds(whole/apart))
}
