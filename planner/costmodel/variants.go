package costmodel

import "slices"

// with is the model with a change, which the model of plans of one stage has as well.
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

// Parts are the models that together price all plans, each of which prices all of its plans alike: one for each spread, and, where layers share
// parameters, one for plans of one stage and one for plans of several.
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

// Where the last layer shares parameters with the first (tied embeddings: Press and Wolf, Using the Output Embedding to Improve Language Models,
// arXiv 1608.05859), plans of one stage hold them once. So these have a model of their own, in which the last layer has fewer. In the other plans
// both stages hold them and exchange their gradients, as Megatron-LM and DeepSpeed do.

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

// Restriction narrows what the plans of a search may use. The zero value of a field leaves it as it is.
type Restriction struct {
	Tensor     int      // the one tensor degree of all stages and layers
	Sharding   Sharding // the one of all layers
	Checkpoint string   // never, selective or always
	MostStages int
	Even       bool // all replicas of a stage take equal shares
	Alone      bool // without context parallelism
	Undivided  bool // without expert parallelism
}

// Restricted is the model within a restriction.
func (m *Model) Restricted(r Restriction) *Model {
	return m.with(func(c *Model) { c.restrict(r) })
}

func (m *Model) restrict(r Restriction) {
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
}

// late is of which layers the gradients that are exchanged once an iteration hide behind no backward pass, though others' may.
type late int

const (
	lateNone late = iota
	lateUnsharded
	lateAll
)

// Late is the model as DeepSpeed trains: in a pipeline, and of layers of which nothing is sharded, gradients are exchanged when the last
// backward pass is over.
func (m *Model) Late() *Model {
	several, alone := *m, *m
	if m.alone != nil {
		alone = *m.alone
	}
	alone.options.MostStages = 1
	several.late, alone.late = lateAll, lateUnsharded
	several.alone = &alone
	return &several
}

// Hides reports whether gradients of a plan of so many stages, or weights, are exchanged while layers with a sharding compute.
func (m *Model) Hides(stages int, s Sharding) bool {
	if m.alone != nil && stages == 1 {
		m = m.alone
	}
	return !m.options.Overlap.Off && m.late != lateAll && (m.late == lateNone || s != Replicated)
}
