package costmodel

import (
	"math"
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/search"
)

// configuration is the device groups of a shape, one or two of different classes, and the possible strategies of layers on them.
type configuration struct {
	groups     []Group
	strategies []Strategy
	costs      [][]layerCost // by kind of layer and strategy
}

// add adds a shape with these groups, if the devices exist and a replica's share was profiled.
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

func (c *Condition) equal(groups []Group) []Group {
	all := slices.Clone(groups)
	for i := range all {
		all[i].Shares = slices.Repeat([]int{c.MicroBatch / c.replicas}, all[i].Replicas)
	}
	return all
}

// configure adds a shape with groups that have shares, if they can run some layer.
func (c *Condition) configure(groups []Group, shape search.Shape) {
	f := configuration{groups: groups}
	f.strategies = c.strategies(groups)
	if !c.price(&f) {
		return
	}
	c.shapes = append(c.shapes, shape)
	c.configurations = append(c.configurations, f)
}

// share sets the groups' shares of a micro-batch. Those of two classes are allocated like micro-batches to nodes, by the time of
// the whole model on a replica, or are equal if the model wants that. False: some replica's share was not profiled.
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
		most, device := c.mostSamples(g), c.topology.Classes[g.Class].Device
		for range g.Replicas {
			nodes.Nodes = append(nodes.Nodes, cluster.Node{Name: device, Device: device, Limit: most})
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

// performance is the line through the times of the whole model on a replica at two micro-batches.
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

// strategies are those to choose from on groups.
func (c *Condition) strategies(groups []Group) []Strategy {
	tensors := []int{0}
	if len(groups) == 1 {
		g := groups[0]
		for _, other := range c.tensors[g.Class] {
			if other != g.Tensor && g.Devices()%other == 0 && g.Devices()/other <= c.MicroBatch {
				tensors = append(tensors, other)
			}
		}
	}
	var all []Strategy
	for _, tensor := range tensors {
		for _, s := range c.options.Shardings {
			for _, y := range c.Recomputations() {
				y.Tensor, y.Sharding = tensor, s
				all = append(all, y)
			}
		}
	}
	return all
}

// price fills the costs of all kinds of layers on a configuration; false if none runs under any strategy. Layers of experts may not where others
// do.
func (c *Condition) price(f *configuration) (runs bool) {
	first := map[int32]int{}
	for l, k := range c.kindOf {
		if _, ok := first[k]; !ok {
			first[k] = l
		}
	}
	f.costs = make([][]layerCost, len(first))
	for k, l := range first {
		for _, y := range f.strategies {
			cost := c.layer(f.groups, l, c.MicroBatch, y)
			if n, _, _ := replicas(f.groups, c.MicroBatch, y, 0); n*c.spread.Context == 1 && y.Sharding != Replicated && slices.Contains(c.options.Shardings, Replicated) {
				cost = never // the same as not sharded
			}
			runs = runs || !math.IsInf(cost.step[0], 1)
			f.costs[k] = append(f.costs[k], cost)
		}
		f.dropDominated(f.costs[k])
	}
	return runs
}

// dropDominated drops a strategy of a layer if another one of the same tensor degree is as good in every number.
func (f *configuration) dropDominated(costs []layerCost) {
	for i := range costs {
		for j := range costs {
			if i != j && f.strategies[i].Tensor == f.strategies[j].Tensor && !math.IsInf(costs[j].step[0], 1) && costs[j].atMost(&costs[i], len(f.groups)) && (j < i || !costs[i].atMost(&costs[j], len(f.groups))) {
				costs[i] = never
				break
			}
		}
	}
}

// atMost says whether no number is above that of another cost, on the first groups.
func (c *layerCost) atMost(o *layerCost, groups int) bool {
	for g := range groups {
		if c.step[g] > o.step[g] || c.perIteration[g] > o.perIteration[g] || c.states[g] > o.states[g] || c.active[g] > o.active[g] || c.peak[g] > o.peak[g] {
			return false
		}
	}
	return true
}
