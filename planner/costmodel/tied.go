package costmodel

import "slices"

// Where the last layer shares parameters with the first (tied embeddings: Press and Wolf, Using the Output Embedding to Improve
// Language Models, arXiv 1608.05859), plans of one stage hold them once. So these have a model of their own, in which the last layer has
// fewer; in the other plans both stages hold them and exchange their gradients, as Megatron-LM and DeepSpeed do.

// tie makes the model of plans of one stage if parameters are shared, and checks that every layer fits some device.
func (m *Model) tie() error {
	last := &m.profile.Layers[len(m.profile.Layers)-1]
	if last.Tied == 0 {
		return m.layersFit()
	}
	m.tied = last.Tied
	p := *m.profile
	p.Layers = slices.Clone(p.Layers)
	own := &p.Layers[len(p.Layers)-1]
	own.Parameters, own.Tied = last.Parameters-last.Tied, 0
	own.Runs = slices.Clone(own.Runs)
	for i := range own.Runs {
		own.Runs[i].Update *= own.Parameters / last.Parameters
	}
	a := *m
	a.profile, a.tied, a.options.MostStages = &p, 0, 1
	a.kindOf, a.runOf = nil, nil
	a.numberLayers()
	m.alone = &a
	return a.layersFit() // a plan of several stages needs more
}

// with is the model with a change, which that of plans of one stage has as well.
func (m *Model) with(change func(*Model)) *Model {
	c := *m
	if m.alone != nil {
		c.alone = m.alone.with(change)
	}
	change(&c)
	return &c
}

// parts are the models of all that plans may be: of each spread, and, where these differ, of one stage and of several.
func (m *Model) Parts() (all []*Model) {
	for _, s := range m.Spreads() {
		all = append(all, m.In(s).byStages()...)
	}
	return all
}

func (m *Model) byStages() (all []*Model) {
	if m.alone == nil {
		return []*Model{m}
	}
	if m.options.LeastStages == 1 {
		all = append(all, m.alone)
	}
	if m.options.MostStages > 1 {
		several := *m
		several.alone, several.options.LeastStages = nil, max(2, m.options.LeastStages)
		all = append(all, &several)
	}
	return all
}

// Tied reports whether layers share parameters.
func (m *Model) Tied() bool { return m.tied > 0 }

// exchangeTied is the seconds of summing the gradients of shared parameters over the first and the last stage: an all-reduce between a
// replica of each, the replicas of a machine over one link unless both stages lie together in a machine.
func (m *Model) exchangeTied(first, last *Stage) float64 {
	if m.tied == 0 {
		return 0
	}
	half := m.tied * m.options.States.Gradients / 2
	if machine := m.machine(first); machine >= 0 && machine == m.machine(last) {
		g := first.Groups[0]
		return 2 * m.options.Calibration.Links * m.inside[g.Class].Seconds(half/float64(min(g.Tensor, last.Groups[0].Tensor)))
	}
	longest := 0.0
	for _, ends := range [][2]*Stage{{first, last}, {last, first}} {
		for _, g := range ends[0].Groups {
			_, most := m.Place(g)
			for _, class := range classes(ends[1]) {
				longest = max(longest, m.between[g.Class][class].Seconds(half*float64(most)/float64(g.Tensor)*float64(m.spread.Context)))
			}
		}
	}
	return 2 * m.options.Calibration.Links * longest
}
