package main

import (
	"math"
	"sync"

	"github.com/evenkeel/evenkeel/planner"
)

// pipeline is what conditions share that differ in the strategy of the vocabulary layers only.
type pipeline struct {
	*model
	chunks, stages int
	ways           []strategy
	sync, plain    []float64
	mixes          [][][]*mix // by stage and layers
	once           []sync.Once
}

func (m *model) pipeline(chunks, stages int) *pipeline {
	p := &pipeline{model: m, chunks: chunks, stages: stages, ways: m.strategies(stages, chunks), mixes: make([][][]*mix, stages), once: make([]sync.Once, stages)}
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

// at are the mixes of layers in a stage.
func (p *pipeline) at(stage, layers int) []*mix {
	p.once[stage].Do(func() {
		most := p.layers - p.stages + 1
		p.mixes[stage] = fronts(p.memory(stage), p.plain, p.sync, most, p.room()-framework)
	})
	return p.mixes[stage][layers]
}

// condition is the cost function of planner.Search for a number of micro-batches, of stages, and a strategy of the
// vocabulary layers. Its total is no less than Galvatron's for the same plan, which only counts the slowest of the first
// and the last stage.
type condition struct {
	*pipeline
	vocabulary strategy
	ends       []float64
	free       []int
	chosen     []*mix
}

// conditions are all of a search.
func (m *model) conditions() []*condition {
	var all []*condition
	for chunks := 1; chunks <= m.batch; chunks++ {
		for stages := 1; stages <= min(m.devices, chunks, m.layers) && m.batch%chunks == 0; stages *= 2 {
			p := m.pipeline(chunks, stages)
			for _, v := range p.ways {
				if v.checkpoint {
					continue
				}
				c := &condition{pipeline: p, vocabulary: v}
				_, c.ends = m.endsTime(v, chunks)
				fits := true
				for _, taken := range m.endsMemory(v, chunks) {
					c.free = append(c.free, m.room()-taken)
					fits = fits && taken < m.room()
				}
				if fits {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func (c *condition) Layers() int                           { return c.layers }
func (c *condition) Pool() []int                           { return []int{c.devices} }
func (c *condition) Shapes() []planner.Shape               { return []planner.Shape{{c.devices / c.stages}} }
func (c *condition) Degrees() (least, most int)            { return c.stages, c.stages }
func (c *condition) Fits(int, []int) bool                  { return true }
func (c *condition) Kind(int) int                          { return 0 }
func (c *condition) Boundary(int, int, int, []int) float64 { return 0 }
func (c *condition) Exact() bool                           { return true }
func (c *condition) Total(f planner.Front) float64         { return f.Sum + float64(c.chunks-1)*f.Max + f.Tail }

// Stage implements planner.Costs.
func (c *condition) Stage(from, to, _, behind int) []planner.Point {
	stage := c.stages - behind
	if to-from > c.layers-c.stages+1 {
		return nil
	}
	var points []planner.Point
	// By memory: the fronts are small, so that a plain filter will do.
	for _, k := range c.at(stage, to-from) {
		if k.memory > c.free[stage] {
			break
		}
		step := k.plain + c.ends[stage]
		points = append(points, planner.Point{Step: step, Tail: max(0, k.sync-step), Key: int32(len(c.chosen))})
		c.chosen = append(c.chosen, k)
	}
	return least(points)
}

// least keeps the points that no other is as good as.
func least(points []planner.Point) []planner.Point {
	var kept []planner.Point
next:
	for i, a := range points {
		for k, b := range points {
			if b.Step <= a.Step && b.Tail <= a.Tail && (b.Step < a.Step || b.Tail < a.Tail || k < i) {
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// extra is what the vocabulary layers add to a layer's stage.
func (c *condition) extra(layer int) float64 {
	v := 0.0
	if layer == 0 {
		v += c.ends[0]
	}
	if layer == c.layers-1 && c.stages > 1 {
		v += c.ends[c.stages-1]
	}
	return v
}

// Work implements planner.Costs.
func (c *condition) Work(_, layer int) float64 {
	least := math.Inf(1)
	for _, v := range c.plain {
		least = min(least, v)
	}
	return (least + c.extra(layer)) * float64(c.devices/c.stages)
}

// Least implements planner.Costs: all layers at the memory they need in the last stage, in the memory of all stages
// together, with fractions of layers.
func (c *condition) Least([]float64) float64 {
	memory := c.memory(c.stages - 1)
	room := 0
	for _, v := range c.free {
		room += v
	}
	share := float64(room) / float64(c.layers) // MB of a layer
	best := math.Inf(1)
	for i, a := range memory {
		for k, b := range memory {
			switch {
			case float64(a) <= share && c.plain[i] < best:
				best = c.plain[i]
			case float64(a) <= share && float64(b) > share:
				part := (share - float64(a)) / float64(b-a)
				best = min(best, c.plain[i]+part*(c.plain[k]-c.plain[i]))
			}
		}
	}
	return (best*float64(c.layers) + c.extra(0) + c.extra(c.layers-1)) * float64(c.devices/c.stages)
}

// plan is what a search found.
func (c *condition) plan(found planner.Candidate) *plan {
	p := &plan{chunks: c.chunks, vocabulary: c.vocabulary}
	for _, k := range found.Choices {
		p.division = append(p.division, k.To-k.From)
		var ways []int
		for m := c.chosen[k.Point.Key]; m.rest != nil; m = m.rest {
			ways = append(ways, m.way)
		}
		for _, w := range ways {
			p.layers = append(p.layers, c.ways[w])
		}
	}
	p.seconds = c.score(p)
	return p
}
