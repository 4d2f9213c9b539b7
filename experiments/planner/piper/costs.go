package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/evenkeel/evenkeel/planner"
)

// costs is Piper's cost function: the seconds of a sample in the slowest stage, for stages that are replicated and split by
// a tensor degree each. A stage holds activations of as many micro-batches as it and those behind have replicas, divided by
// its own.
type costs struct {
	*graph
	devices int
	parts   []part          // by tensor degree
	shapes  []planner.Shape // devices and replicas
	degree  []int           // index of the tensor degree, by shape
}

// degrees are the tensor degrees that were measured.
var degrees = []int{1, 2, 4, 8}

// part is what the stages of a tensor degree are summed from.
type part struct {
	seconds, bytes  []float64 // of nodes 0..i-1, in the fastest ways: seconds, and bytes of parameters
	perMicro, fixed []float64
	cut             [][]float64 // bytes that cross the ends of a stage: cut[from][to]
	swaps           []swap      // cheapest first
	able            []int       // nodes 0..i-1 that can run so
}

// swap is a change of a node to recomputation.
type swap struct {
	node                     int
	seconds, perMicro, fixed float64
}

func newCosts(g *graph, devices int) *costs {
	c := &costs{graph: g, devices: devices}
	for i, t := range degrees {
		c.parts = append(c.parts, g.part(t))
		for d := 1; d*t <= devices && d <= g.Batch; d++ {
			if g.Batch%d == 0 {
				c.shapes = append(c.shapes, planner.Shape{d * t, d})
				c.degree = append(c.degree, i)
			}
		}
	}
	return c
}

func (g *graph) part(t int) part {
	n := len(g.Nodes)
	p := part{seconds: make([]float64, n+1), bytes: make([]float64, n+1), perMicro: make([]float64, n+1), fixed: make([]float64, n+1), able: make([]int, n+1)}
	key := strconv.Itoa
	forward, back := make([]way, n), make([]way, n)
	for i, node := range g.Nodes {
		ways := node.Ways[key(t)]
		p.able[i+1] = p.able[i]
		var w way
		if len(ways) > 0 {
			p.able[i+1]++
			w = slices.MinFunc(ways, func(a, b way) int { return cmp.Compare(a.Seconds, b.Seconds) })
			for _, o := range ways {
				if o.Name != w.Name {
					p.swaps = append(p.swaps, swap{i, o.Seconds - w.Seconds, o.PerMicro - w.PerMicro, o.Fixed - w.Fixed})
				}
			}
		}
		forward[i], back[i] = w, w
		p.seconds[i+1], p.bytes[i+1] = p.seconds[i]+w.Seconds, p.bytes[i]+w.Bytes
		p.perMicro[i+1], p.fixed[i+1] = p.perMicro[i]+w.PerMicro, p.fixed[i]+w.Fixed
	}
	p.cut = make([][]float64, n+1)
	for from := range n {
		p.cut[from] = make([]float64, n+1)
		for to := from + 1; to <= n; to++ {
			for _, e := range g.Edges {
				inFrom, inTo := e.From >= from && e.From < to, e.To >= from && e.To < to
				switch {
				case inTo && !inFrom:
					p.cut[from][to] += 2 * (e.Bytes + forward[e.To].Forward[key(e.From)])
				case inFrom && !inTo:
					p.cut[from][to] += 2 * (e.Bytes + back[e.From].Back[key(e.To)])
				}
			}
		}
	}
	return p
}

// stage is the seconds of a sample in nodes from..to-1, and which of them recompute.
func (c *costs) stage(from, to, degree, replicas, micros int) (seconds float64, recomputed []int, ok bool) {
	p := &c.parts[degree]
	if p.able[to]-p.able[from] < to-from {
		return 0, nil, false
	}
	d, y := float64(replicas), float64(micros)
	seconds = p.seconds[to] - p.seconds[from]
	over := (p.perMicro[to]-p.perMicro[from])*y + p.fixed[to] - p.fixed[from] - c.Limit
	if over > 0 {
		type saving struct {
			node           int
			bytes, seconds float64
		}
		var all []saving
		for _, s := range p.swaps {
			if bytes := -(s.perMicro*y + s.fixed); s.node >= from && s.node < to && bytes > 1e-9 {
				all = append(all, saving{s.node, bytes, s.seconds})
			}
		}
		slices.SortStableFunc(all, func(a, b saving) int { return cmp.Compare(a.seconds/a.bytes, b.seconds/b.bytes) })
		for _, s := range all {
			if over <= 0 {
				break
			}
			over -= s.bytes
			seconds += s.seconds
			recomputed = append(recomputed, s.node)
		}
		if over > 0 {
			return 0, nil, false
		}
	}
	bytes := p.cut[from][to]/d + 4*(d-1)/d*(p.bytes[to]-p.bytes[from])/float64(c.Batch)
	return seconds/d + bytes/c.Bandwidth, recomputed, true
}

// condition is the planner.Costs of plans whose stages have equally many replicas. planner.Costs tells a stage how many are
// behind it, which then is how many micro-batches it holds; its devices are the replicas' shares of a stage.
type condition struct {
	*costs
	replicas int
}

// search finds the best plan whose stages have equally many replicas.
func (c *costs) search(ctx context.Context, o planner.SearchOptions) (seconds float64, stages []stage, err error) {
	var all []planner.Costs
	for d := 1; d <= min(c.devices, c.Batch); d++ {
		if c.Batch%d == 0 {
			all = append(all, &condition{c, d})
		}
	}
	found, err := planner.Search(ctx, all, o)
	if err != nil {
		return 0, nil, err
	}
	best := found.Best[0]
	for _, k := range best.Choices {
		stages = append(stages, stage{k.From, k.To, degrees[k.Shape], all[best.Condition].(*condition).replicas})
	}
	return best.Total, stages, nil
}

// Layers implements planner.Costs.
func (c *condition) Layers() int { return len(c.Nodes) }

// Pool implements planner.Costs.
func (c *condition) Pool() []int { return []int{c.devices / c.replicas} }

// Shapes implements planner.Costs.
func (c *condition) Shapes() []planner.Shape {
	var all []planner.Shape
	for _, t := range degrees {
		all = append(all, planner.Shape{t})
	}
	return all
}

// Degrees implements planner.Costs.
func (c *condition) Degrees() (least, most int) {
	return 1, min(len(c.Nodes), c.devices/c.replicas, c.Batch/c.replicas)
}

// Fits implements planner.Costs.
func (c *condition) Fits(int, []int) bool { return true }

// Stage implements planner.Costs.
func (c *condition) Stage(from, to, shape, behind int) []planner.Point {
	v, _, ok := c.stage(from, to, shape, c.replicas, behind)
	if !ok {
		return nil
	}
	return []planner.Point{{Step: v}}
}

// Kind implements planner.Costs.
func (c *condition) Kind(int) int { return 0 }

// Boundary implements planner.Costs.
func (c *condition) Boundary(int, int, int, []int) float64 { return 0 }

// Work implements planner.Costs.
func (c *condition) Work(_, layer int) float64 {
	least := math.Inf(1)
	for i, p := range c.parts {
		if p.able[layer+1] > p.able[layer] {
			least = min(least, float64(degrees[i])*(p.seconds[layer+1]-p.seconds[layer])/float64(c.replicas))
		}
	}
	return least
}

// Least implements planner.Costs.
func (c *condition) Least([]float64) float64 { return 0 }

// Total implements planner.Costs.
func (c *condition) Total(f planner.Front) float64 { return f.Max }

// Exact implements planner.Costs.
func (c *condition) Exact() bool { return true }
