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
	many   bool // labels, which are not kept
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

// mostLabels of a stage are kept. Where memory is short and every layer another, there are many times as many; such a stage is packed, too.
const mostLabels = 1 << 12

// Stage implements search.Costs. Its points are Pareto points over all choices of a strategy for each layer: labels grow
// from the last layer to the first, as in Galvatron's dynamic programming, but keep the time of a micro-batch, the
// per-iteration cost and memory apart, so that neither memory is rounded nor the two times weighted.
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
				l.step[0] += c.convert(f.groups, from+1, c.MicroBatch, strategy, f.strategies[o.strategy])
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
		if l.memory[i]+l.peak[i]+c.Reserve(g.Class) > c.Limit(g.Class) {
			return false
		}
	}
	return true
}

// undominated keeps the labels that no other with the same tensor degree of the first layer dominates, in memory as well unless there
// is room for any.
func (c *Condition) undominated(f *configuration, all []label, roomy bool) []label {
	order := make([]int32, len(all))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, k int32) int {
		a, b := &all[i], &all[k]
		return cmp.Or(cmp.Compare(a.step[0], b.step[0]), cmp.Compare(a.perIteration[0], b.perIteration[0]), cmp.Compare(a.memory[0], b.memory[0]), cmp.Compare(i, k))
	})
	fronts := map[int]*front{}
	var keep []label
	for _, i := range order {
		l := &all[i]
		tensor := f.strategies[l.strategy].Tensor
		if fronts[tensor] == nil {
			fronts[tensor] = &front{}
		}
		if fronts[tensor].add(l.point(len(f.groups), roomy)) {
			keep = append(keep, *l)
		}
	}
	return keep
}

// point is what of a label another must not exceed to dominate it, its first step aside: labels are sorted by that.
func (l *label) point(groups int, roomy bool) []float64 {
	p := append(make([]float64, 0, 4*groups-1), l.perIteration[:groups]...)
	p = append(p, l.step[1:groups]...)
	if !roomy {
		p = append(append(p, l.memory[:groups]...), l.peak[:groups]...)
	}
	return p
}

// front holds points of which none is at least as good as a later one in everything. So that few are looked at for each, most lie in boxes,
// k-d trees (Bentley, Multidimensional binary search trees used for associative searching, 1975) that are joined as they become as large.
type front struct {
	boxes []*box
	last  [][]float64 // in no box yet
}

// boxed is how many points make a box.
const boxed = 16

// add adds a point unless one is at least as good in everything.
func (f *front) add(p []float64) bool {
	for _, b := range f.boxes {
		if b.dominates(p) {
			return false
		}
	}
	for _, o := range f.last {
		if below(o, p) {
			return false
		}
	}
	if f.last = append(f.last, p); len(f.last) == boxed*boxed {
		all := f.last
		for n := len(f.boxes); n > 0 && f.boxes[n-1].count <= len(all); n-- {
			all, f.boxes = f.boxes[n-1].points(all), f.boxes[:n-1]
		}
		f.boxes, f.last = append(f.boxes, newBox(all, 0)), nil
	}
	return true
}

// below reports whether no number of a is above that of b.
func below(a, b []float64) bool {
	for i, v := range a {
		if v > b[i] {
			return false
		}
	}
	return true
}

// box holds points: up to boxed, or two boxes.
type box struct {
	low   []float64 // the least of each number
	count int
	some  [][]float64
	parts []*box
}

func newBox(all [][]float64, by int) *box {
	b := &box{low: slices.Clone(all[0]), count: len(all)}
	for _, p := range all {
		for i, v := range p {
			b.low[i] = min(b.low[i], v)
		}
	}
	if len(all) <= boxed {
		b.some = slices.Clone(all)
		return b
	}
	slices.SortFunc(all, func(p, q []float64) int { return cmp.Compare(p[by], q[by]) })
	half, by := len(all)/2, (by+1)%len(b.low)
	b.parts = []*box{newBox(all[:half], by), newBox(all[half:], by)}
	return b
}

// dominates reports whether some point of the box is at least as good as another in everything.
func (b *box) dominates(p []float64) bool {
	if !below(b.low, p) {
		return false
	}
	for _, o := range b.some {
		if below(o, p) {
			return true
		}
	}
	for _, part := range b.parts {
		if part.dominates(p) {
			return true
		}
	}
	return false
}

// points appends those of the box.
func (b *box) points(to [][]float64) [][]float64 {
	to = append(to, b.some...)
	for _, part := range b.parts {
		to = part.points(to)
	}
	return to
}
