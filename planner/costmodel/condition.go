package costmodel

import (
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/search"
)

// Condition is a preset condition: the samples of an iteration, of a micro-batch, and how many replicas share it at stage
// boundaries. It implements search.Costs, search.Relaxer, and has Grain.
type Condition struct {
	*Model
	GlobalBatch    int // samples of an iteration
	MicroBatch     int // samples of a micro-batch, over all replicas
	replicas       int
	shapes         []search.Shape
	configurations []configuration // by shape
	work           [][]float64     // by class and layer
	cells          map[cellKey]*cell
	labels         []label  // of stages of small models
	packings       []packed // of stages of large ones
	packer         packer
	guessed        bool // some stage was packed: there may be better ones
	relaxed        bool // stages are bounds, not plans
}

// Relaxed implements search.Relaxer: the condition with lower bounds for stages.
func (c *Condition) Relaxed() search.Costs {
	r := *c
	r.relaxed, r.cells, r.packer, r.guessed = true, map[cellKey]*cell{}, packer{}, false
	return &r
}

// configuration is a shape's device groups, one or two of different classes, and the strategies of layers on them.
type configuration struct {
	groups     []Group
	strategies []Strategy
	costs      [][]layerCost // by kind of layer and strategy
	most       layerCost     // the most states, active and peak bytes that all layers together may take
}

// Conditions are all that the options allow.
func (m *Model) Conditions() []*Condition {
	var all []*Condition
	for _, part := range m.Parts() {
		all = append(all, part.conditions()...)
	}
	return all
}

func (m *Model) conditions() []*Condition {
	devices := 0
	for _, c := range m.topology.Classes {
		devices += c.Count
	}
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
	c := &Condition{Model: m, GlobalBatch: batch, MicroBatch: samples, replicas: replicas, cells: map[cellKey]*cell{}}
	for class := range m.topology.Classes {
		for _, t := range m.tensors[class] {
			c.add([]Group{{Class: class, Replicas: replicas, Tensor: t}})
		}
	}
	// Two classes share a stage in quarters of its replicas.
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

// add makes a shape of groups, if the devices exist and a replica's share was profiled.
func (c *Condition) add(groups []Group) {
	shape := make(search.Shape, len(c.topology.Classes))
	for _, g := range groups {
		n, per := g.Devices(), c.topology.Classes[g.Class].PerMachine
		if n > c.topology.Classes[g.Class].Count || n > per && n%per != 0 {
			return
		}
		shape[g.Class] = n
	}
	if !c.share(groups) {
		return
	}
	c.configure(groups, shape)
	if len(groups) == 1 {
		return
	}
	if equal := c.equal(groups); !slices.EqualFunc(equal, groups, func(a, b Group) bool { return slices.Equal(a.Shares, b.Shares) }) {
		c.configure(equal, shape)
	}
}

// equal is the groups with equal shares.
func (c *Condition) equal(groups []Group) []Group {
	all := slices.Clone(groups)
	for i := range all {
		all[i].Shares = slices.Repeat([]int{c.MicroBatch / c.replicas}, all[i].Replicas)
	}
	return all
}

// configure makes a shape of groups that have shares, if they can run every layer.
func (c *Condition) configure(groups []Group, shape search.Shape) {
	f := configuration{groups: groups}
	f.strategies = c.strategies(groups)
	if !c.price(&f) {
		return
	}
	c.shapes = append(c.shapes, shape)
	c.configurations = append(c.configurations, f)
}

// share sets the groups' shares of a micro-batch: equal within a class, by the allocation of micro-batches to nodes
// between classes, with the time of the whole model as a node's time, or equal everywhere.
func (c *Condition) share(groups []Group) bool {
	if len(groups) == 1 {
		groups[0].Shares = Even(c.MicroBatch, groups[0].Replicas)
		return true
	}
	if c.even {
		copy(groups, c.equal(groups))
		return true
	}
	nodes := cluster.Cluster{GlobalBatch: c.MicroBatch, Workload: c.profile.Model}
	var perf []cluster.Performance
	for _, g := range groups {
		p, ok := c.performance(g)
		if !ok {
			return false
		}
		most := c.most(g)
		for range g.Replicas {
			nodes.Nodes = append(nodes.Nodes, cluster.Node{Name: c.devices[g.Class], Device: c.devices[g.Class], Limit: most})
			perf = append(perf, p)
		}
	}
	sizes := make([]int, len(perf))
	if _, err := new(cluster.Allocator).AllocateOnce(&nodes, perf, sizes); err != nil {
		return false
	}
	first := 0
	for i := range groups {
		groups[i].Shares = sizes[first:][:groups[i].Replicas:groups[i].Replicas]
		first += groups[i].Replicas
	}
	return true
}

// performance fits the time of the whole model on a replica of a group by a line through two micro-batches.
func (c *Condition) performance(g Group) (p cluster.Performance, ok bool) {
	low, high := c.MicroBatch/c.replicas, c.MicroBatch/c.replicas
	for n := 2 * high; n <= c.MicroBatch; n *= 2 {
		if _, ok := c.whole(g, n); !ok {
			break
		}
		high = n
	}
	if low == high {
		low = max(1, low/2)
	}
	a, ok1 := c.whole(g, low)
	b, ok2 := c.whole(g, high)
	if !ok1 || !ok2 {
		return p, false
	}
	p.PerSample = b / float64(high)
	if high > low {
		p.PerSample = max((b-a)/float64(high-low), 1e-3*b/float64(high))
		p.Overhead = max(0, a-p.PerSample*float64(low))
	}
	return p, p.PerSample > 0
}

// Even divides samples over replicas, the larger parts first.
func Even(samples, replicas int) []int {
	all := make([]int, replicas)
	for i := range all {
		all[i] = samples / replicas
		if i < samples%replicas {
			all[i]++
		}
	}
	return all
}

// whole is the seconds of all layers on one replica of a group.
func (c *Condition) whole(g Group, samples int) (float64, bool) {
	s := 0.0
	for l := range c.profile.Layers {
		r, ok := c.Curve(l, g.Class, g.Tensor).At(samples)
		if !ok {
			return 0, false
		}
		s += r.Forward + r.Backward
	}
	return s * c.PassFactor(g.Class), true
}

// most is the largest micro-batch that every layer was profiled with.
func (c *Condition) most(g Group) int {
	most := math.MaxInt32
	for l := range c.profile.Layers {
		runs := c.Curve(l, g.Class, g.Tensor)
		most = min(most, runs[len(runs)-1].MicroBatch)
	}
	return most
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
						// Device-seconds that the whole micro-batch would take at the rate of this group's share.
						all[l] = min(all[l], cost.step[g]*float64(group.Devices())*float64(c.MicroBatch)/float64(samples))
					}
				}
			}
		}
		c.work = append(c.work, all)
	}
}

// Layers implements search.Costs, as do all methods below.
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

// microBatches of an iteration.
func (c *Condition) microBatches() int { return c.GlobalBatch / c.MicroBatch }

// Total is the seconds of an iteration per sample.
func (c *Condition) Total(f search.Front) float64 {
	return (f.Sum + float64(c.microBatches()-1)*f.Max + f.PerIteration) / float64(c.GlobalBatch)
}

// Exact implements search.Costs.
func (c *Condition) Exact() bool { return !c.guessed }

// Grain is the devices of a machine of each class, which search.Costs may have.
func (c *Condition) Grain() []int {
	var grain []int
	for _, k := range c.topology.Classes {
		grain = append(grain, k.PerMachine)
	}
	return grain
}

// Fits keeps a stage of less than a machine within one, and others to whole machines.
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
