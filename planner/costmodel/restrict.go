package costmodel

import (
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

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

// behind is what an exchange of once an iteration lasts longer than the backward pass of a layer that it may hide behind.
func (m *Model) Behind(s Sharding, backward, exchange float64) float64 {
	if m.late == lateAll || m.late == lateUnsharded && s == Replicated {
		return exchange
	}
	return m.options.Overlap.Together(backward, exchange) - backward
}

// Tensors are the tensor degrees that some class of devices can have, rising.
func (m *Model) Tensors() []int {
	all := slices.Concat(m.tensors...)
	slices.Sort(all)
	return slices.Compact(all)
}

// TensorsOf are the tensor degrees that a class of devices can have, rising.
func (m *Model) TensorsOf(class int) []int { return m.tensors[class] }

// Choices are the options with their defaults.
func (m *Model) Choices() Options { return m.options }

// Alike says whether two layers cost the same.
func (m *Model) Alike(a, b int) bool { return m.kindOf[a] == m.kindOf[b] }

// Kinds is the kind of each layer, numbered from 0 in the order of the layers: layers of a kind cost the same.
func (m *Model) Kinds() []int32 { return m.kindOf }

// Layers are the layers that the model prices: those of the profile, but in a plan of one stage the last without what it shares with the first.
func (m *Model) Layers() []layerprofile.Layer { return m.profile.Layers }

// Classes are the classes of devices, or of units of Spread.Context devices.
func (m *Model) Classes() []cluster.Class { return m.topology.Classes }

// Inside is the path between devices of a machine of a class.
func (m *Model) Inside(class int) cluster.Path { return m.inside[class] }

// Between is the path between machines of two classes.
func (m *Model) Between(a, b int) cluster.Path { return m.between[a][b] }
