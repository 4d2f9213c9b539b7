package costmodel

import (
	"fmt"
	"slices"

	"evenkeel/planner/layerprofile"
)

// Spread is what the replicas of a plan divide among devices besides tensors, the same in all stages. At most one degree is above 1.
//
// Context parallelism (Liu et al., Ring Attention, arXiv 2310.01889) divides the sequence of a sample. Context devices of a machine
// form a unit. It is priced as one device that computes that many times faster, and whose devices exchange the keys and values of
// attention in a ring.
//
// Expert parallelism (Lepikhin et al., GShard, arXiv 2006.16668) divides the experts of a layer among the Experts replicas of a
// block, which send their samples to each other. It does not change other layers.
type Spread struct{ Context, Experts int }

// Spreads are all spreads that the options allow.
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

// contexts are the degrees of context parallelism that divide the devices of some machine.
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

// WhyNot says why no plan can have a spread; "": some plan can. At most one degree may be above 1.
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

// Mixture says whether some layer is a mixture of experts.
func (m *Model) Mixture() bool {
	return slices.ContainsFunc(m.profile.Layers, func(l layerprofile.Layer) bool { return l.Experts > 0 })
}

// Divides says whether a layer's experts are divided.
func (m *Model) Divides(l int) bool { return m.spread.Experts > 1 && m.profile.Layers[l].Experts > 0 }

// Cannot says why a layer cannot lie on a group of a stage at a tensor degree; "": it can.
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
	e := m.spread.Experts
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
