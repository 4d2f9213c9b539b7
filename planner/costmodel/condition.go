package costmodel

import (
	"math"

	"evenkeel/planner/search"
)

// Condition is a preset condition: the samples of an iteration and of a micro-batch, and the number of replicas of every stage. It
// implements search.Costs.
type Condition struct {
	*Model
	GlobalBatch    int // samples of an iteration
	MicroBatch     int // samples of a micro-batch, over all replicas
	replicas       int
	shapes         []search.Shape
	configurations []configuration // by shape
	work           [][]float64     // by class and layer
	cells          map[cellKey][]search.Point
	packings       []packed
	packer         packer
}

// Conditions are all preset conditions that the options allow.
func (m *Model) Conditions() []*Condition {
	var all []*Condition
	for _, part := range m.Parts() {
		all = append(all, part.conditions()...)
	}
	return all
}

func (m *Model) conditions() []*Condition {
	devices := m.Count()
	var all []*Condition
	for _, batch := range m.options.GlobalBatches {
		replicas := m.options.Replicas
		if replicas == nil {
			replicas = Divisors(batch)
		}
		for _, d := range replicas {
			if d > devices || batch%d != 0 {
				continue
			}
			micro := m.options.MicroBatches
			if micro == nil {
				micro = Divisors(batch / d)
			}
			for _, b := range micro {
				if batch%(d*b) != 0 {
					continue
				}
				if c := m.condition(batch, d, d*b); len(c.shapes) > 0 {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// Divisors of a number, rising.
func Divisors(n int) []int {
	var small, large []int
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			small = append(small, d)
			if d*d != n {
				large = append([]int{n / d}, large...)
			}
		}
	}
	return append(small, large...)
}

func (m *Model) condition(batch, replicas, samples int) *Condition {
	c := &Condition{Model: m, GlobalBatch: batch, MicroBatch: samples, replicas: replicas, cells: map[cellKey][]search.Point{}}
	for class := range m.topology.Classes {
		for _, t := range m.tensors[class] {
			c.add([]Group{{Class: class, Replicas: replicas, Tensor: t}})
		}
	}
	// Two classes may share a stage, in quarters of its replicas.
	part := max(1, replicas/4)
	for a := range m.topology.Classes {
		for b := range a {
			for first := part; first < replicas; first += part {
				for _, ta := range m.tensors[a] {
					for _, tb := range m.tensors[b] {
						if c.wide(a, ta) || c.wide(b, tb) {
							continue
						}
						c.add([]Group{{Class: b, Replicas: first, Tensor: tb}, {Class: a, Replicas: replicas - first, Tensor: ta}})
					}
				}
			}
		}
	}
	c.boundWork()
	return c
}

// boundWork finds the least device-seconds of each layer on each class over all configurations.
func (c *Condition) boundWork() {
	n := len(c.profile.Layers)
	for class := range c.topology.Classes {
		all := make([]float64, n)
		for l := range all {
			all[l] = math.Inf(1)
		}
		for _, f := range c.configurations {
			for g, group := range f.groups {
				if group.Class != class {
					continue
				}
				samples := 0
				for _, n := range group.Shares {
					samples += n
				}
				for l := range all {
					for w := range f.strategies {
						cost := &f.costs[c.kindOf[l]][w]
						// Device-seconds of the whole micro-batch at the rate of this group.
						all[l] = min(all[l], cost.step[g]*float64(group.Devices())*float64(c.MicroBatch)/float64(samples))
					}
				}
			}
		}
		c.work = append(c.work, all)
	}
}

// Layers implements search.Costs.
func (c *Condition) Layers() int { return len(c.profile.Layers) }

// Pool implements search.Costs.
func (c *Condition) Pool() []int {
	var pool []int
	for _, class := range c.topology.Classes {
		pool = append(pool, class.Count)
	}
	return pool
}

// Shapes implements search.Costs.
func (c *Condition) Shapes() []search.Shape { return c.shapes }

// Degrees implements search.Costs.
func (c *Condition) Degrees() (least, most int) { return c.options.LeastStages, c.options.MostStages }

// Work implements search.Costs.
func (c *Condition) Work(class, layer int) float64 { return c.work[class][layer] }

func (c *Condition) microBatches() int { return c.GlobalBatch / c.MicroBatch }

// Total is the seconds of an iteration per sample.
func (c *Condition) Total(f search.Front) float64 {
	return (f.Sum + float64(c.microBatches()-1)*f.Max + f.PerIteration) / float64(c.GlobalBatch)
}

// Exact implements search.Costs. Better strategies than those that a stage is packed with may exist.
func (c *Condition) Exact() bool { return false }

// Grain implements search.Costs.
func (c *Condition) Grain() []int {
	var grain []int
	for _, k := range c.topology.Classes {
		grain = append(grain, k.PerMachine)
	}
	return grain
}

// Fits implements search.Costs: a stage lies within a machine or takes whole machines.
func (c *Condition) Fits(shape int, used []int) bool {
	for class, n := range c.shapes[shape] {
		if n == 0 {
			continue
		}
		k := &c.topology.Classes[class]
		first := k.Count - used[class] - n
		if n >= k.PerMachine && first%k.PerMachine != 0 || first/k.PerMachine != (first+min(n, k.PerMachine)-1)/k.PerMachine {
			return false
		}
	}
	return true
}

// Kind implements search.Costs. It encodes the classes of a shape, and whether the shape is smaller than a machine.
func (c *Condition) Kind(shape int) int {
	kind := 0
	for class, n := range c.shapes[shape] {
		if n > 0 {
			kind |= 2 << class
		}
	}
	if g := c.configurations[shape].groups; len(g) == 1 && g[0].Devices() < c.topology.Classes[g[0].Class].PerMachine {
		kind |= 1
	}
	return kind
}

// Boundary implements search.Costs; see links.send.
func (c *Condition) Boundary(layer, shape, next int, used []int) search.Sending {
	groups := c.configurations[shape].groups
	class := groups[0].Class
	// The next stage begins in the machine in which this one ends.
	together := c.Kind(shape) == next && next&1 == 1 && (c.topology.Classes[class].Count-used[class])%c.topology.Classes[class].PerMachine != 0
	var to []int
	for other := range c.topology.Classes {
		if next&(2<<other) != 0 {
			to = append(to, other)
		}
	}
	return c.sending(c.send(groups, c.input(layer), to, together))
}

// sending says what a transfer forth and back counts for. Beside computing it lengthens no step, and each direction carries one
// micro-batch at a time.
func (m *Model) sending(seconds float64) search.Sending {
	if m.beside {
		return search.Sending{Passing: seconds, Link: seconds / 2}
	}
	return search.Sending{Busy: seconds, Passing: seconds}
}
