package costmodel

import "slices"

// with is the model with a change. Its model of plans of one stage is changed as well.
func (m *Model) with(change func(*Model)) *Model {
	c := *m
	if m.alone != nil {
		c.alone = m.alone.with(change)
	}
	change(&c)
	return &c
}

// WithMemory is the model with factor times as much memory on every device.
func (m *Model) WithMemory(factor float64) *Model {
	return m.with(func(c *Model) { c.topology = m.topology.WithMemory(factor) })
}

// Calibrated is the model with another calibration.
func (m *Model) Calibrated(calibration Calibration) (*Model, error) {
	calibration, err := calibration.withDefaults()
	if err != nil {
		return nil, err
	}
	return m.with(func(c *Model) { c.options.Calibration, c.factor = calibration, calibration.Links }), nil
}

// In is the model of plans with a spread. It counts devices in units of Spread.Context.
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

// Parts are models that together price all plans, each with one rule for all its plans: one model for each spread and, if layers
// share parameters, one for plans of one stage and one for plans of several.
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

// If the last layer shares parameters with the first (tied embeddings: Press and Wolf, Using the Output Embedding to Improve
// Language Models, arXiv 1608.05859), plans of one stage hold them once. These plans have a separate model, in which the last layer
// has fewer parameters. In other plans both stages hold them and exchange their gradients, as in Megatron-LM and DeepSpeed.

// tie makes the model of plans of one stage if parameters are shared, and checks that every layer fits some device.
func (m *Model) tie() error {
	last := &m.profile.Layers[len(m.profile.Layers)-1]
	if last.Tied == 0 {
		return m.checkLayersFit()
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
	a.layers, a.tied, a.options.MostStages = newLayers(&p), 0, 1
	m.alone = &a
	return a.checkLayersFit() // a plan of several stages needs more
}

// Tied says whether layers share parameters.
func (m *Model) Tied() bool { return m.tied > 0 }

// Restriction restricts the plans of a search. The zero value of a field restricts nothing.
type Restriction struct {
	Tensor     int      // of all stages and layers
	Sharding   Sharding // of all layers
	Checkpoint string   // never, selective or always
	MostStages int
	Even       bool // all replicas of a stage take equal shares
	Alone      bool // without context parallelism
	Undivided  bool // without expert parallelism
}

// Restricted is the model within a restriction.
func (m *Model) Restricted(r Restriction) *Model {
	return m.with(func(m *Model) {
		if r.Tensor > 0 {
			all := m.tensors
			m.tensors = make([][]int, len(all)) // a class without the degree is not used
			for class, of := range all {
				if slices.Contains(of, r.Tensor) {
					m.tensors[class] = []int{r.Tensor}
				}
			}
		}
		if r.Sharding != "" {
			m.options.Shardings = []Sharding{r.Sharding}
		}
		if r.Checkpoint != "" {
			m.options.Checkpoint = r.Checkpoint
		}
		if r.MostStages > 0 {
			m.options.MostStages = min(m.options.MostStages, r.MostStages)
		}
		m.even = r.Even
		if r.Alone {
			m.options.Contexts = []int{1}
		}
		if r.Undivided {
			m.options.Experts = []int{1}
		}
	})
}

// Beside is the model by which stages compute while they send. Its plans are for schedules that send ahead.
func (m *Model) Beside() *Model { return m.with(func(c *Model) { c.beside = true }) }

// IsBeside says whether the model is one of Beside.
func (m *Model) IsBeside() bool { return m.beside }

// late says for which layers the exchange of gradients, once in an iteration, does not overlap with the backward pass.
type late int

const (
	lateNone late = iota
	lateUnsharded
	lateAll
)

// Sequential is the model with sequence parallelism.
func (m *Model) Sequential() *Model {
	return m.with(func(c *Model) { c.options.Sequence, c.divided = true, true })
}

// Late is the model as DeepSpeed trains: in a pipeline, and for layers without sharding, gradients are exchanged after the last
// backward pass. The devices of a replica divide what it sends (pipe_partitioned).
func (m *Model) Late() *Model {
	several, alone := *m, *m
	if m.alone != nil {
		alone = *m.alone
	}
	alone.options.MostStages = 1
	several.late, several.divided, alone.late = lateAll, true, lateUnsharded
	several.alone = &alone
	return &several
}

// Hides says whether layers with a sharding compute while their gradients or weights are exchanged, in a plan with this number of
// stages.
func (m *Model) Hides(stages int, s Sharding) bool {
	if m.alone != nil && stages == 1 {
		m = m.alone
	}
	return !m.options.Overlap.Off && m.late != lateAll && (m.late == lateNone || s != Replicated)
}
