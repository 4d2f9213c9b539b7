package main

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/planner/search"
)

// search finds the plan of the least cost. Over equal stages, as Galvatron has them, the cost is Galvatron's, but for
// reductions that outlast those of the first stage, and no stage may take longer than the iteration; over any stages it is
// that of counted.
func (m *model) search(ctx context.Context, equal bool) (best *plan, found *search.Result, err error) {
	conditions := m.conditions(equal)
	all := make([]search.Costs, len(conditions))
	for i, c := range conditions {
		all[i] = c
	}
	found, err = search.Run(ctx, all, search.Options{})
	if err != nil {
		return nil, nil, err
	}
	return conditions[found.Best[0].Condition].plan(found.Best[0]), found, nil
}

// pipeline is what conditions share that differ in the strategy of the vocabulary layers only.
type pipeline struct {
	*model
	chunks, degree int
	ways           []strategy
	sync, plain    []float64
	once           []sync.Once
	mixes          [][][]*mix // by stage and layers
}

func (m *model) pipeline(chunks, degree int) *pipeline {
	p := &pipeline{model: m, chunks: chunks, degree: degree, ways: m.strategies(degree, chunks), mixes: make([][][]*mix, degree), once: make([]sync.Once, degree)}
	for _, s := range p.ways {
		a, b := m.layer(s, chunks)
		p.sync, p.plain = append(p.sync, a), append(p.plain, b)
	}
	return p
}

func (p *pipeline) memory(stage int) []int {
	all := make([]int, len(p.ways))
	for i, s := range p.ways {
		all[i] = p.layerMemory(s, p.chunks, stage)
	}
	return all
}

// at are the mixes of so many layers in a stage.
func (p *pipeline) at(stage, layers int) []*mix {
	p.once[stage].Do(func() {
		p.mixes[stage] = fronts(p.memory(stage), p.plain, p.sync, p.layers-p.degree+1, p.room()-framework)
	})
	return p.mixes[stage][layers]
}

// condition is the search.Costs of a number of micro-batches, of stages, and a strategy of the vocabulary layers. What
// it calls a layer is a block of layers that stay together. Devices are alike and a stage has its equal share of them, as
// in Galvatron; the time between stages is in that of the layers.
type condition struct {
	*pipeline
	vocabulary strategy
	ends       []float64 // seconds of the vocabulary layers, by stage
	free       []int     // MB for layers, by stage
	block      int
	equal      bool
	chosen     []*mix
}

// conditions are all of a search.
func (m *model) conditions(equal bool) []*condition {
	var all []*condition
	for chunks := 1; chunks <= m.batch; chunks++ {
		for degree := 1; degree <= min(m.devices, chunks, m.layers) && m.batch%chunks == 0; degree *= 2 {
			p := m.pipeline(chunks, degree)
			for _, v := range p.ways {
				if v.checkpoint || equal && m.layers%degree > 0 {
					continue
				}
				c := &condition{pipeline: p, vocabulary: v, ends: m.endsTime(v, chunks), block: 1, equal: equal}
				if equal {
					c.block = m.layers / degree
				}
				for _, taken := range m.endsMemory(v, chunks) {
					c.free = append(c.free, m.room()-taken)
				}
				if slices.Min(c.free) > 0 {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// Layers implements search.Costs.
func (c *condition) Layers() int { return c.layers / c.block }

// Pool implements search.Costs.
func (c *condition) Pool() []int { return []int{c.devices} }

// Shapes implements search.Costs.
func (c *condition) Shapes() []search.Shape { return []search.Shape{{c.devices / c.degree}} }

// Degrees implements search.Costs.
func (c *condition) Degrees() (least, most int) { return c.degree, c.degree }

// Fits implements search.Costs.
func (c *condition) Fits(int, []int) bool { return true }

// Kind implements search.Costs.
func (c *condition) Kind(int) int { return 0 }

// Boundary implements search.Costs.
func (c *condition) Boundary(int, int, int, []int) (busy, sum float64) { return 0, 0 }

// Exact implements search.Costs.
func (c *condition) Exact() bool { return true }

// Total implements search.Costs.
func (c *condition) Total(f search.Front) float64 {
	switch {
	case !c.equal:
		return f.Sum + float64(c.chunks-1)*f.Max + f.PerIteration
	case c.degree == 1:
		return f.Sum + f.PerIteration
	default:
		return max(f.Sum+f.PerIteration, float64(c.chunks)*f.Max)
	}
}

// Stage implements search.Costs. Its points' per-iteration costs are the time that gradients are reduced beyond a micro-batch; over
// equal stages those of the first and the last stage are also the time of the other micro-batches, as the total is that of
// the worse of the two.
func (c *condition) Stage(from, to, _, behind int) []search.Point {
	stage, layers := c.degree-behind, (to-from)*c.block
	if layers > c.layers-c.degree+1 {
		return nil
	}
	var points []search.Point
	for _, k := range c.at(stage, layers) {
		if k.memory > c.free[stage] {
			break
		}
		p := search.Point{Step: k.plain + c.ends[stage], Key: int32(len(c.chosen))}
		if !c.equal || stage == 0 {
			p.PerIteration = max(0, k.sync-p.Step)
		}
		switch {
		case c.equal && behind == 1:
			p.PerIteration += float64(c.chunks-1) * p.Step
		case c.equal && stage == 0:
			p.PerIteration += float64(c.chunks-c.degree) * p.Step
		}
		points = append(points, p)
		c.chosen = append(c.chosen, k)
	}
	return least(points)
}

// least keeps the points that no other is as good as.
func least(points []search.Point) []search.Point {
	var kept []search.Point
next:
	for i, a := range points {
		for k, b := range points {
			if b.Step <= a.Step && b.PerIteration <= a.PerIteration && (b.Step < a.Step || b.PerIteration < a.PerIteration || k < i) {
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// Work implements search.Costs: the fastest way; the vocabulary layers are with the first and the last.
func (c *condition) Work(_, layer int) float64 {
	v := slices.Min(c.plain) * float64(c.block)
	if layer == 0 {
		v += c.ends[0]
	}
	if layer == c.Layers()-1 && c.degree > 1 {
		v += c.ends[c.degree-1]
	}
	return v * float64(c.devices/c.degree)
}

// Least implements search.Costs: all layers with the memory they need in the last stage, in the memory of all stages
// together, and fractions of layers.
func (c *condition) Least([]float64) float64 {
	memory := c.memory(c.degree - 1)
	room, all := 0, 0.0
	for i, v := range c.free {
		room += v
		all += c.ends[i]
	}
	share := float64(room) / float64(c.layers) // MB of a layer
	best := math.Inf(1)
	for i, a := range memory {
		if float64(a) > share {
			continue
		}
		best = min(best, c.plain[i])
		for k, b := range memory {
			if float64(b) > share {
				best = min(best, c.plain[i]+(share-float64(a))/float64(b-a)*(c.plain[k]-c.plain[i]))
			}
		}
	}
	return (best*float64(c.layers) + all) * float64(c.devices/c.degree)
}

// plan is what a search found.
func (c *condition) plan(found search.Candidate) *plan {
	p := &plan{chunks: c.chunks, vocabulary: c.vocabulary}
	for _, k := range found.Choices {
		p.division = append(p.division, (k.To-k.From)*c.block)
		for m := c.chosen[k.Point.Key]; m.rest != nil; m = m.rest {
			p.layers = append(p.layers, c.ways[m.way])
		}
	}
	p.seconds = c.score(p)
	return p
}
