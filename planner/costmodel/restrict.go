package costmodel

import "slices"

// Restriction narrows what the plans of a search may use. The zero value of a field leaves it as it is.
type Restriction struct {
	Tensor     int      // the one tensor degree of all stages and layers
	Sharding   Sharding // the one of all layers
	Checkpoint string   // never or always
	MostStages int
	Even       bool // all replicas of a stage take equal shares
}

// Restricted is the model within a restriction.
func (m *Model) Restricted(r Restriction) *Model {
	c := *m
	if r.Tensor > 0 {
		c.tensors = make([][]int, len(m.tensors)) // a class without the degree is not used
		for class, all := range m.tensors {
			if slices.Contains(all, r.Tensor) {
				c.tensors[class] = []int{r.Tensor}
			}
		}
	}
	if r.Sharding != "" {
		c.options.Shardings = []Sharding{r.Sharding}
	}
	if r.Checkpoint != "" {
		c.options.Checkpoint = r.Checkpoint
	}
	if r.MostStages > 0 {
		c.options.MostStages = min(c.options.MostStages, r.MostStages)
	}
	c.even = r.Even
	return &c
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
