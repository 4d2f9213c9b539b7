package costmodel

import (
	"cmp"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/search"
)

// cellKey identifies a stage: its layers, its shape, and how many micro-batches are in flight.
type cellKey struct {
	content  int32
	shape    int32
	inflight int32
}

// cell holds the Pareto labels of a stage, by all numbers that matter when layers are put before it.
type cell struct {
	labels []int32
	points []search.Point
	priced bool
}

// label is a choice of strategies for a stage: that of its first layer, and the label of the others.
type label struct {
	step         [MaxGroups]float64
	perIteration [MaxGroups]float64
	memory       [MaxGroups]float64 // without peak
	peak         [MaxGroups]float64
	strategy     int32
	next         int32 // -1: it has one layer
}

// exactLayers is the largest number of layers of a model whose stages keep all Pareto labels; larger models are packed.
const exactLayers = 8

// Stage implements search.Costs. Its points are Pareto points over all choices of a strategy for each layer: labels grow
// from the last layer to the first, as in Galvatron's dynamic programming, but keep the time of a micro-batch, the
// per-iteration cost and memory apart, so that neither memory is rounded nor the two times weighted.
func (c *Condition) Stage(from, to, shape, behind int) []search.Point {
	k := cellKey{c.content(from, to), int32(shape), int32(min(behind, c.microBatches()))}
	if s := c.cells[k]; s != nil && s.priced {
		return s.points
	}
	if len(c.profile.Layers) > exactLayers {
		s := &cell{points: c.packedPoints(from, to, shape, int(k.inflight)), priced: true}
		c.cells[k] = s
		return s.points
	}
	s := c.cell(k, from, to)
	s.priced = true
	f := &c.configurations[shape]
	for _, i := range s.labels {
		l := &c.labels[i]
		step := l.step[0]
		if len(f.groups) == 2 {
			step = max(step, l.step[1])
		}
		s.points = append(s.points, search.Point{Step: step, PerIteration: slices.Max(l.perIteration[:]), Key: i})
	}
	s.points = pareto(s.points)
	return s.points
}

// pareto keeps the points that no other dominates, by rising step.
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

// cell makes the labels of layers from..to-1 from those of from+1..to-1.
func (c *Condition) cell(k cellKey, from, to int) *cell {
	if s := c.cells[k]; s != nil {
		return s
	}
	s := &cell{}
	c.cells[k] = s
	f := &c.configurations[k.shape]
	rest := []int32{-1}
	if to > from+1 {
		rest = c.cell(cellKey{c.content(from+1, to), k.shape, k.inflight}, from+1, to).labels
	}
	var made []label
	for w, strategy := range f.strategies {
		cost := &f.costs[c.kindOf[from]][w]
		if math.IsInf(cost.step[0], 1) {
			continue
		}
		for _, r := range rest {
			l := label{strategy: int32(w), next: r, perIteration: cost.perIteration}
			for g := range f.groups {
				l.step[g] = cost.step[g]
				l.memory[g] = cost.states[g] + float64(k.inflight)*cost.active[g]
				l.peak[g] = cost.peak[g]
			}
			if r >= 0 {
				o := &c.labels[r]
				for g := range f.groups {
					l.perIteration[g] += o.perIteration[g]
					l.step[g] += o.step[g]
					l.memory[g] += o.memory[g]
					l.peak[g] = max(l.peak[g], o.peak[g])
				}
				l.step[0] += c.convert(f.groups, from+1, c.MicroBatch, strategy, f.strategies[o.strategy])
			}
			if c.fits(f, &l) {
				made = append(made, l)
			}
		}
	}
	for _, l := range c.undominated(f, made, c.roomy(f, int(k.inflight))) {
		c.labels = append(c.labels, l)
		s.labels = append(s.labels, int32(len(c.labels)-1))
	}
	return s
}

func (c *Condition) fits(f *configuration, l *label) bool {
	for i, g := range f.groups {
		if l.memory[i]+l.peak[i]+c.reserve(g.Class) > c.limit(g.Class) {
			return false
		}
	}
	return true
}

// undominated keeps the labels that no other with the same tensor degree of the first layer dominates, in memory as well unless there
// is room for any.
func (c *Condition) undominated(f *configuration, all []label, roomy bool) []label {
	slices.SortStableFunc(all, func(a, b label) int {
		return cmp.Or(cmp.Compare(a.step[0], b.step[0]), cmp.Compare(a.perIteration[0], b.perIteration[0]), cmp.Compare(a.memory[0], b.memory[0]))
	})
	var keep []label
	for i := range all {
		b := &all[i]
		if !slices.ContainsFunc(keep, func(a label) bool {
			return f.strategies[a.strategy].Tensor == f.strategies[b.strategy].Tensor && a.dominates(b, roomy)
		}) {
			keep = append(keep, *b)
		}
	}
	return keep
}

// dominates reports whether a is at least as good as b in everything, memory aside if there is room for any.
func (a *label) dominates(b *label, roomy bool) bool {
	for g := range a.step {
		if a.step[g] > b.step[g] || a.perIteration[g] > b.perIteration[g] || !roomy && (a.memory[g] > b.memory[g] || a.peak[g] > b.peak[g]) {
			return false
		}
	}
	return true
}
