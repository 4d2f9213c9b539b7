package costmodel

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/planner/search"
)

// cellKey identifies a stage: its layers, its shape, and how many micro-batches are in flight.
type cellKey struct {
	content  int32
	shape    int32
	inflight int32
}

// cell holds the Pareto labels of a stage.
type cell struct {
	labels []int32
	points []search.Point
	priced bool
	many   bool // there are more than mostLabels, so none is kept
}

// label is a choice of strategies for a stage: the strategy of its first layer, and the label of the other layers.
type label struct {
	step         [MaxGroups]float64
	perIteration [MaxGroups]float64
	memory       [MaxGroups]float64 // without peak
	peak         [MaxGroups]float64
	strategy     int32
	next         int32 // -1: it has one layer
}

// exactLayers is the largest number of layers of a model whose stages keep all Pareto labels. Stages of larger models are packed.
const exactLayers = 8

// mostLabels is the largest number of labels of a stage. If memory is short and all layers differ there would be many more; such a
// stage is packed, too.
const mostLabels = 1 << 12

// Stage implements search.Costs. Its points are Pareto points over all choices of a strategy for each layer. Labels grow from the
// last layer to the first, as in Galvatron's dynamic programming, but keep the time of a micro-batch, the per-iteration cost and
// memory separate. So memory is not rounded, and the two times are not weighted.
func (c *Condition) Stage(from, to, shape, behind int) []search.Point {
	k := cellKey{c.Run(from, to), int32(shape), int32(min(behind, c.microBatches()))}
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
	if s.many {
		s.points = c.packedPoints(from, to, shape, int(k.inflight))
		return s.points
	}
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
		after := c.cell(cellKey{c.Run(from+1, to), k.shape, k.inflight}, from+1, to)
		if rest = after.labels; after.many {
			s.many = true
			return s
		}
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
				l.step[0] += c.convert(f.groups, c.MicroBatch, c.input(from+1), strategy, f.strategies[o.strategy])
			}
			if c.fits(f, &l) {
				made = append(made, l)
			}
		}
	}
	keep := c.undominated(f, made, c.roomy(f, int(k.inflight)))
	if s.many = len(keep) > mostLabels; s.many {
		return s
	}
	for _, l := range keep {
		c.labels = append(c.labels, l)
		s.labels = append(s.labels, int32(len(c.labels)-1))
	}
	return s
}

func (c *Condition) fits(f *configuration, l *label) bool {
	for i, g := range f.groups {
		if !c.Holds(g.Class, l.memory[i]+l.peak[i]) {
			return false
		}
	}
	return true
}

// roomy says whether all layers of the model fit into one stage of a configuration with any strategies, so that memory does not
// matter.
func (c *Condition) roomy(f *configuration, inflight int) bool {
	for i, g := range f.groups {
		if !c.Holds(g.Class, f.most.states[i]+float64(inflight)*f.most.active[i]+f.most.peak[i]) {
			return false
		}
	}
	return true
}

// undominated keeps the labels that no other label with the same tensor degree of the first layer dominates. Memory counts unless
// the stage is roomy. It stops at more than mostLabels labels.
func (c *Condition) undominated(f *configuration, all []label, roomy bool) (keep []label) {
	slices.SortStableFunc(all, func(a, b label) int {
		return cmp.Or(cmp.Compare(a.step[0], b.step[0]), cmp.Compare(a.perIteration[0], b.perIteration[0]), cmp.Compare(a.memory[0], b.memory[0]))
	})
	fronts := map[int][][]float64{} // of the labels that are kept, by tensor degree
	for i := range all {
		tensor, p := f.strategies[all[i].strategy].Tensor, all[i].point(len(f.groups), roomy)
		front := fronts[tensor]
		if k := slices.IndexFunc(front, func(o []float64) bool { return below(o, p) }); k >= 0 {
			front[0], front[k] = front[k], front[0] // it often dominates the next as well
			continue
		}
		fronts[tensor] = append(front, p)
		if keep = append(keep, all[i]); len(keep) > mostLabels {
			break
		}
	}
	return keep
}

// point is the numbers of a label to compare, except the step of the first group, by which labels are sorted.
func (l *label) point(groups int, roomy bool) []float64 {
	p := append(make([]float64, 0, 4*groups-1), l.perIteration[:groups]...)
	p = append(p, l.step[1:groups]...)
	if !roomy {
		p = append(append(p, l.memory[:groups]...), l.peak[:groups]...)
	}
	return p
}

// below says whether no number of a is above that of b.
func below(a, b []float64) bool {
	for i, v := range a {
		if v > b[i] {
			return false
		}
	}
	return true
}
