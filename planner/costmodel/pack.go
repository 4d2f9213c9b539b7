package costmodel

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/planner/search"
)

// Stages are packed: strategies are chosen as in the multiple-choice knapsack problem (Sinha and Zoltners, The
// multiple-choice knapsack problem, 1979). Every layer begins with the strategy that takes the least memory. Then layers change to
// quicker strategies until the memory is full; changes that save the most time per byte come first. If the last change may apply
// to a part of a layer (relaxed), the result is a lower bound on every choice.

// packed is a choice of strategies: the number of layers of each kind under each strategy.
type packed []packedRun

type packedRun struct {
	kind, strategy int32
	count          int
}

// option is a strategy of a kind of layer as the knapsack sees it.
type option struct {
	strategy     int32
	cost, memory float64 // memory as a share of the capacity of the fullest group
}

// upgrade changes layers of a kind from one option to the next one on the lower convex hull of cost over memory.
type upgrade struct {
	item, level int
	slope       float64 // cost saved per memory
}

// item is a kind of layer in a stage.
type item struct {
	kind    int32
	count   int
	hull    []option
	atLevel []int // layers at each option of the hull
}

type packer struct {
	items    []item
	upgrades []upgrade
	peaks    []float64
}

// kindsIn counts the layers of each kind from..to-1 into the packer.
func (c *Condition) kindsIn(p *packer, from, to int) {
	p.items = p.items[:0]
	for kind := range int32(c.kinds) {
		if n := c.counts[to][kind] - c.counts[from][kind]; n > 0 {
			p.items = append(p.items, item{kind: kind, count: n})
		}
	}
}

// weights weigh the two times. A stage is packed for the least weighted sum.
type weights struct{ step, perIteration float64 }

// pack chooses strategies for the layers in the packer, among those of one tensor degree whose peak is at most peak. all: more
// memory would not change the choice. Not ok: the layers do not fit.
func (c *Condition) pack(f *configuration, inflight int, tensor int, peak [MaxGroups]float64, weight weights) (least float64, all, ok bool) {
	p := &c.packer
	var capacity [MaxGroups]float64
	for i, g := range f.groups {
		capacity[i] = c.Room(g.Class) - peak[i]
		if capacity[i] <= 0 {
			return 0, false, false
		}
	}
	for i := range p.items {
		c.setOptions(f, &p.items[i], inflight, tensor, peak, capacity, weight)
	}
	return p.fill(false)
}

// fill solves the knapsack. relaxed: the last upgrade may apply to a part of a layer. all: there is memory for every upgrade.
func (p *packer) fill(relaxed bool) (least float64, all, ok bool) {
	all = true
	p.upgrades = p.upgrades[:0]
	room := 1.0
	for i := range p.items {
		it := &p.items[i]
		if len(it.hull) == 0 {
			return 0, false, false
		}
		it.atLevel = append(it.atLevel[:0], make([]int, len(it.hull))...)
		it.atLevel[0] = it.count
		n := float64(it.count)
		room -= n * it.hull[0].memory
		least += n * it.hull[0].cost
		for l := 1; l < len(it.hull); l++ {
			a, b := it.hull[l-1], it.hull[l]
			p.upgrades = append(p.upgrades, upgrade{i, l, (a.cost - b.cost) / (b.memory - a.memory)})
		}
	}
	if room < -1e-12 {
		return 0, false, false
	}
	slices.SortStableFunc(p.upgrades, func(a, b upgrade) int { return cmp.Compare(b.slope, a.slope) })
	for _, u := range p.upgrades {
		it := &p.items[u.item]
		a, b := it.hull[u.level-1], it.hull[u.level]
		more := b.memory - a.memory
		n := float64(it.atLevel[u.level-1])
		if fit := room / more; fit < n {
			if relaxed { // part of a layer fills the rest of the room
				return least - fit*(a.cost-b.cost), false, true
			}
			n, all = math.Floor(max(0, fit)), false
		}
		it.atLevel[u.level-1] -= int(n)
		it.atLevel[u.level] += int(n)
		room -= n * more
		least -= n * (a.cost - b.cost)
	}
	return least, all, true
}

func (p *packer) choice(into packed) packed {
	for _, it := range p.items {
		for l, n := range it.atLevel {
			if n > 0 {
				into = append(into, packedRun{it.kind, it.hull[l].strategy, n})
			}
		}
	}
	return into
}

func (c *Condition) setOptions(f *configuration, it *item, inflight, tensor int, peak, capacity [MaxGroups]float64, weight weights) {
	it.hull = it.hull[:0]
	for w := range f.strategies {
		cost := &f.costs[it.kind][w]
		if f.strategies[w].Tensor != tensor || math.IsInf(cost.step[0], 1) {
			continue
		}
		o, small := option{strategy: int32(w)}, true
		step, perIteration := 0.0, 0.0
		for g := range f.groups {
			memory := (cost.states[g] + float64(inflight)*cost.active[g]) / capacity[g]
			step, perIteration, o.memory = max(step, cost.step[g]), max(perIteration, cost.perIteration[g]), max(o.memory, memory)
			small = small && cost.peak[g] <= peak[g]
		}
		o.cost = weight.step*step + weight.perIteration*perIteration
		if small {
			it.hull = append(it.hull, o)
		}
	}
	it.hull = convex(it.hull)
}

// convex is the lower convex hull of cost over memory, by rising memory.
func convex(all []option) []option {
	slices.SortStableFunc(all, func(a, b option) int { return cmp.Or(cmp.Compare(a.memory, b.memory), cmp.Compare(a.cost, b.cost)) })
	keep := all[:0]
	for _, o := range all {
		if n := len(keep); n > 0 && (o.cost >= keep[n-1].cost || o.memory <= keep[n-1].memory) {
			continue
		}
		for n := len(keep); n > 1; n-- {
			a, b := keep[n-2], keep[n-1]
			if (a.cost-b.cost)*(o.memory-b.memory) > (b.cost-o.cost)*(b.memory-a.memory) {
				break
			}
			keep = keep[:n-1]
		}
		keep = append(keep, o)
	}
	return keep
}

// peaksOf collects the peaks of all strategies of the layers in the packer, on the first group. Room must be left for a peak.
func (c *Condition) peaksOf(f *configuration, p *packer) {
	p.peaks = p.peaks[:0]
	for _, it := range p.items {
		for w := range f.strategies {
			if !math.IsInf(f.costs[it.kind][w].step[0], 1) {
				p.peaks = append(p.peaks, f.costs[it.kind][w].peak[0])
			}
		}
	}
	slices.Sort(p.peaks)
	p.peaks = slices.Compact(p.peaks)
}

// cellKey identifies a stage: its layers, its shape, and how many micro-batches are in flight.
type cellKey struct{ content, shape, inflight int32 }

// Stage implements search.Costs.
func (c *Condition) Stage(from, to, shape, behind int) []search.Point {
	k := cellKey{c.Run(from, to), int32(shape), int32(min(behind, c.microBatches()))}
	points, priced := c.cells[k]
	if !priced {
		points = c.packedPoints(from, to, shape, int(k.inflight))
		c.cells[k] = points
	}
	return points
}

// pareto keeps the points that no other point dominates, by rising step.
func pareto(points []search.Point) []search.Point {
	slices.SortStableFunc(points, func(a, b search.Point) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.PerIteration, b.PerIteration))
	})
	keep := points[:0]
	for _, p := range points {
		if len(keep) == 0 || p.PerIteration < keep[len(keep)-1].PerIteration {
			keep = append(keep, p)
		}
	}
	return keep
}

// packedPoints prices a stage: one point for each tensor degree and each of two weights of a step in an iteration
// (the number of micro-batches if the stage is the slowest, else 1).
func (c *Condition) packedPoints(from, to, shape, inflight int) []search.Point {
	f, p := &c.configurations[shape], &c.packer
	c.kindsIn(p, from, to)
	c.peaksOf(f, p)
	var points []search.Point
	for i, y := range f.strategies {
		if i > 0 && y.Tensor == f.strategies[i-1].Tensor {
			continue
		}
		for _, weight := range []weights{{float64(c.microBatches()), 1}, {1, 1}} {
			best, least := packed(nil), math.Inf(1)
			for _, small := range slices.Backward(p.peaks) {
				cost, all, ok := c.pack(f, inflight, y.Tensor, c.peaks(f, small), weight)
				if ok && cost <= least {
					best, least = p.choice(best[:0]), cost
				}
				if ok && all {
					break // a smaller choice of strategies cannot be better
				}
			}
			if best != nil {
				step, perIteration := c.times(f, best)
				points = append(points, search.Point{Step: step, PerIteration: perIteration, Key: int32(len(c.packings))})
				c.packings = append(c.packings, best)
			}
			if c.microBatches() == 1 {
				break
			}
		}
	}
	return pareto(points)
}

// peaks is a peak of the first group, and the peak of the second group with the strategies that stay below it.
func (c *Condition) peaks(f *configuration, first float64) [MaxGroups]float64 {
	second := 0.0
	if len(f.groups) == 2 {
		for _, it := range c.packer.items {
			for w := range f.strategies {
				if cost := &f.costs[it.kind][w]; cost.peak[0] <= first && !math.IsInf(cost.step[0], 1) {
					second = max(second, cost.peak[1])
				}
			}
		}
	}
	return [MaxGroups]float64{first, second} // the search mixes two classes
}

// times is the step and the per-iteration cost of a choice, each on its slowest group.
func (c *Condition) times(f *configuration, k packed) (step, perIteration float64) {
	var steps, once [MaxGroups]float64
	for _, r := range k {
		cost := &f.costs[r.kind][r.strategy]
		for g := range f.groups {
			steps[g] += float64(r.count) * cost.step[g]
			once[g] += float64(r.count) * cost.perIteration[g]
		}
	}
	return slices.Max(steps[:]), slices.Max(once[:])
}

// Least implements search.Costs. Every layer may have any shape and strategy, as long as all layers together fit into the memory
// of all devices together, with one micro-batch in flight.
func (c *Condition) Least(speed []float64) float64 {
	p := &c.packer
	c.kindsIn(p, 0, len(c.profile.Layers))
	capacity := 0.0
	for class, k := range c.topology.Classes {
		capacity += float64(k.Count) * max(0, c.Room(class))
	}
	for i := range p.items {
		it := &p.items[i]
		it.hull = it.hull[:0]
		for _, f := range c.configurations {
			for w := range f.strategies {
				cost := &f.costs[it.kind][w]
				if math.IsInf(cost.step[0], 1) {
					continue
				}
				o := option{strategy: int32(w)}
				for i, g := range f.groups {
					n := float64(g.Devices())
					o.cost += n * speed[g.Class] * cost.step[i]
					o.memory += n * (cost.states[i] + cost.active[i]) / capacity
				}
				it.hull = append(it.hull, o)
			}
		}
		it.hull = convex(it.hull)
	}
	least, _, ok := p.fill(true)
	if !ok {
		return math.Inf(1)
	}
	return least
}
