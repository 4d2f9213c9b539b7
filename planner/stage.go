package planner

import (
	"cmp"
	"math"
	"slices"
)

// cellKey is a stage: what its layers are, its form, and how many micro-batches are in flight.
type cellKey struct {
	content  int32
	shape    int32
	inflight int32
}

// cell holds the ways to run a stage: its Pareto labels, by all numbers that count when layers are put before it.
type cell struct {
	labels []int32
	points []Point
	priced bool
}

// label is a stage run in a certain way, as the way of its first layer and the label of the others.
type label struct {
	step   [maxTeams]float64
	tail   [maxTeams]float64
	memory [maxTeams]float64 // without peak
	peak   [maxTeams]float64
	way    int32
	next   int32 // -1: it has one layer
}

// exactLayers is how many layers a model may have whose stages keep all Pareto labels; larger ones are packed.
const exactLayers = 8

// Stage implements Costs. Its points are Pareto points over all choices of a strategy for each layer: labels grow from
// the last layer to the first, as in Galvatron's dynamic programming, but keep time, tail and memory apart, so that no
// memory need be rounded and no weight between time and tail be chosen.
func (c *condition) Stage(from, to, shape, behind int) []Point {
	k := cellKey{c.content(from, to), int32(shape), int32(min(behind, c.microBatches()))}
	if s := c.cells[k]; s != nil && s.priced {
		return s.points
	}
	if len(c.Profile.Layers) > exactLayers {
		s := &cell{points: c.packs(from, to, shape, int(k.inflight)), priced: true}
		c.cells[k] = s
		return s.points
	}
	s := c.cell(k, from, to)
	s.priced = true
	f := &c.forms[shape]
	for _, i := range s.labels {
		l := &c.labels[i]
		step := l.step[0]
		if len(f.groups) == 2 {
			step = max(step, l.step[1])
		}
		s.points = append(s.points, Point{Step: step, Tail: slices.Max(l.tail[:]), Key: i})
	}
	s.points = pareto(s.points)
	return s.points
}

// pareto keeps the points that no other is as good as in both numbers, by rising step.
func pareto(points []Point) []Point {
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Tail, b.Tail)) })
	keep := points[:0]
	for _, p := range points {
		if len(keep) == 0 || p.Tail < keep[len(keep)-1].Tail {
			keep = append(keep, p)
		}
	}
	return keep
}

// cell makes the labels of layers from..to-1 out of those of from+1..to-1.
func (c *condition) cell(k cellKey, from, to int) *cell {
	if s := c.cells[k]; s != nil {
		return s
	}
	s := &cell{}
	c.cells[k] = s
	f := &c.forms[k.shape]
	rest := []int32{-1}
	if to > from+1 {
		rest = c.cell(cellKey{c.content(from+1, to), k.shape, k.inflight}, from+1, to).labels
	}
	var made []label
	for w := range f.ways {
		cost := &f.costs[c.alike[from]][w]
		if math.IsInf(cost.step[0], 1) {
			continue
		}
		for _, r := range rest {
			l := label{way: int32(w), next: r, tail: cost.tail}
			for g := range f.groups {
				l.step[g] = cost.step[g]
				l.memory[g] = cost.states[g] + float64(k.inflight)*cost.active[g]
				l.peak[g] = cost.peak[g]
			}
			if r >= 0 {
				o := &c.labels[r]
				for g := range f.groups {
					l.tail[g] += o.tail[g]
					l.step[g] += o.step[g]
					l.memory[g] += o.memory[g]
					l.peak[g] = max(l.peak[g], o.peak[g])
				}
				l.step[0] += c.convert(f, from+1, f.ways[w], f.ways[o.way])
			}
			if c.fits(f, &l) {
				made = append(made, l)
			}
		}
	}
	for _, l := range c.undominated(f, made) {
		c.labels = append(c.labels, l)
		s.labels = append(s.labels, int32(len(c.labels)-1))
	}
	return s
}

func (c *condition) fits(f *form, l *label) bool {
	for g, t := range f.groups {
		if l.memory[g]+l.peak[g]+c.Options.Reserve > c.limit(t.class) {
			return false
		}
	}
	return true
}

// undominated keeps the labels that no other with the same tensor degree in front is as good as in everything.
func (c *condition) undominated(f *form, all []label) []label {
	slices.SortStableFunc(all, func(a, b label) int {
		return cmp.Or(cmp.Compare(a.step[0], b.step[0]), cmp.Compare(a.tail[0], b.tail[0]), cmp.Compare(a.memory[0], b.memory[0]))
	})
	var keep []label
	for i := range all {
		b := &all[i]
		if !slices.ContainsFunc(keep, func(a label) bool { return f.ways[a.way].tensor == f.ways[b.way].tensor && a.beats(b) }) {
			keep = append(keep, *b)
		}
	}
	return keep
}

// beats says whether a is as good as b in everything.
func (a *label) beats(b *label) bool {
	for g := range a.step {
		if a.step[g] > b.step[g] || a.tail[g] > b.tail[g] || a.memory[g] > b.memory[g] || a.peak[g] > b.peak[g] {
			return false
		}
	}
	return true
}
