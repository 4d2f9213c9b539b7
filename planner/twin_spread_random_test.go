package planner_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// spread makes the case one with units, divided experts or replicas over several machines, now and then with a fault.
func (c *twinCase) spread(rng *rand.Rand) {
	c.spreads = true
	switch twinPick(rng, "context", "experts", "experts", "machines", "machines") {
	case "context":
		if twinChance(rng, 0.1) {
			c.joinMachines(rng)
		}
		c.divideSequences(rng)
	case "experts":
		beside := twinChance(rng, 0.2)
		if beside {
			c.joinMachines(rng)
		} else if twinChance(rng, 0.7) {
			c.wholeMachines(rng)
		}
		c.divideExperts(rng, twinChance(rng, 0.25))
	case "machines":
		c.joinMachines(rng)
	}
	if twinChance(rng, 0.02) {
		c.Plan.Context, c.Plan.Experts = max(2, c.Plan.Context), max(2, c.Plan.Experts)
	}
}

// sequence lets runs keep less by sequence parallelism, whether the case has it or not.
func (c *twinCase) sequence(rng *rand.Rand) {
	c.spreads = true
	c.Options.Sequence = twinChance(rng, 0.7)
	for i := range c.Layers {
		for _, key := range c.Layers[i].keys() {
			for k := range c.Layers[i].Runs[key] {
				r := &c.Layers[i].Runs[key][k]
				r.Sequence = math.Floor((r.Activation - r.Freed) * rng.Float64())
			}
		}
	}
}

// pipeline is the number of stages with devices of their own.
func (p *twinPlan) pipeline() int { return len(p.Stages) / max(1, p.Chunks) }

// wholeMachines puts a stage, with all others on its devices, on whole machines of a class of their own.
func (c *twinCase) wholeMachines(rng *rand.Rand) {
	p := &c.Plan
	per, machines := twinPick(rng, 1, 2, 2, 3, 4, 4, 8), twinPick(rng, 2, 2, 3, 4)
	k := twinClass{Device: fmt.Sprintf("x%d", len(c.Cluster.Classes)), PerMachine: per, Count: per * (machines + 2), Memory: math.Round(twinScale(rng, 1e9, 1e12)), Slow: 1, Inside: twinRandomLevel(rng), Link: twinRandomLink(rng), Switch: -1}
	if len(c.Cluster.Switches) > 0 {
		k.Switch = rng.IntN(len(c.Cluster.Switches))
	}
	g := twinGroup{Class: len(c.Cluster.Classes), First: per * rng.IntN(3), Count: per * machines}
	g.Tensor = twinDegree(rng, g.First, g.Count, per)
	if twinChance(rng, 0.15) { // replicas that lie within machines and do not divide them
		k.PerMachine, k.Count = 5, 15
		g.First, g.Count, g.Tensor = 1, 8, 2
	}
	c.Cluster.Classes = append(c.Cluster.Classes, k)
	micro, stages := p.GlobalBatch/p.MicroBatch, p.pipeline()
	p.MicroBatch = max(p.MicroBatch, g.Count/g.Tensor+rng.IntN(3))
	p.GlobalBatch = p.MicroBatch * micro
	groups := []twinGroup{g}
	for i := rng.IntN(stages); i < len(p.Stages); i += stages {
		s := &p.Stages[i]
		s.Groups, s.Strategies = groups, nil
		twinStrategies(rng, &c.Cluster, s)
	}
	for i := range stages { // later chunks have the same groups
		twinShares(rng, &p.Stages[i], p.MicroBatch)
	}
	c.Layers = twinRandomLayers(rng, &c.Cluster, p.Stages[len(p.Stages)-1].To, p.MicroBatch)
}

// joinMachines measures degrees over several machines, and takes some.
func (c *twinCase) joinMachines(rng *rand.Rand) {
	if twinChance(rng, 0.8) {
		c.wholeMachines(rng)
	}
	p := &c.Plan
	for class, k := range c.Cluster.Classes {
		for machines := 2; machines <= k.Count/k.PerMachine; machines++ {
			for i := range c.Layers {
				if !twinChance(rng, 0.02) {
					c.Layers[i].Runs[twinKey{class, machines * k.PerMachine, machines}] = twinRandomRuns(rng, p.MicroBatch, false)
				}
				if twinChance(rng, 0.1) { // in one machine, which is another measurement
					c.Layers[i].Runs[twinKey{class, machines * k.PerMachine, 1}] = twinRandomRuns(rng, p.MicroBatch, false)
				}
				if twinChance(rng, 0.1) && k.PerMachine%machines == 0 { // in more machines than the plan has it
					c.Layers[i].Runs[twinKey{class, k.PerMachine, machines}] = twinRandomRuns(rng, p.MicroBatch, false)
				}
			}
		}
	}
	stages := p.pipeline()
	for i := range stages {
		g := &p.Stages[i].Groups[0]
		per := c.Cluster.Classes[g.Class].PerMachine
		machines := g.Count / per
		if len(p.Stages[i].Groups) > 1 || g.First%per != 0 || g.Count%per != 0 || machines < 2 {
			continue
		}
		degree := func() int {
			of := 2 + rng.IntN(machines-1)
			for machines%of != 0 {
				of = 2 + rng.IntN(machines-1)
			}
			return per * of
		}
		if twinChance(rng, 0.6) {
			g.Tensor = degree()
		}
		for k := i; k < len(p.Stages); k += stages {
			for l := range p.Stages[k].Strategies {
				if twinChance(rng, 0.4) {
					p.Stages[k].Strategies[l].Tensor = degree()
				}
			}
		}
	}
	if twinChance(rng, 0.3) {
		c.spoilDegree(rng)
	}
	for i := range stages {
		twinShares(rng, &p.Stages[i], p.MicroBatch)
	}
}

// spoilDegree takes a degree above a machine wherever a group has devices enough, or one that was not measured.
func (c *twinCase) spoilDegree(rng *rand.Rand) {
	p := &c.Plan
	s := &p.Stages[rng.IntN(p.pipeline())]
	g := &s.Groups[rng.IntN(len(s.Groups))]
	k := &c.Cluster.Classes[g.Class]
	if per := k.PerMachine; g.Tensor > per && per > 1 && twinChance(rng, 0.5) {
		k.Count += per // for the last group of the class
		g.First++
		return
	} else if g.Tensor > per {
		for i := range c.Layers {
			delete(c.Layers[i].Runs, twinKey{g.Class, g.Tensor, g.Tensor / per})
		}
		for i := range s.Strategies {
			if s.Strategies[i].Tensor == 0 || s.Strategies[i].Tensor == g.Tensor {
				s.Strategies[i].Tensor = 1
			}
		}
		return
	}
	var degrees []int
	for t := k.PerMachine + 1; t <= g.Count; t++ {
		if g.Count%t == 0 {
			degrees = append(degrees, t)
		}
	}
	switch {
	case len(degrees) == 0:
	case len(s.Groups) > 1 || twinChance(rng, 0.5):
		g.Tensor = twinPick(rng, degrees...)
	default:
		s.Strategies[rng.IntN(len(s.Strategies))].Tensor = twinPick(rng, degrees...)
	}
}

// divideSequences makes every device of the plan a unit.
func (c *twinCase) divideSequences(rng *rand.Rand) {
	p := &c.Plan
	p.Context = twinPick(rng, 2, 2, 4, 4, 3)
	used := map[int]bool{}
	for i := range p.Stages {
		for k := range p.Stages[i].Groups {
			g := &p.Stages[i].Groups[k]
			used[g.Class] = true
			if i < p.pipeline() {
				g.First, g.Count = g.First*p.Context, g.Count*p.Context
			}
		}
	}
	for i := range c.Cluster.Classes {
		if k := &c.Cluster.Classes[i]; used[i] || twinChance(rng, 0.5) {
			k.Count, k.PerMachine = k.Count*p.Context, k.PerMachine*p.Context
		}
	}
	least := twinPick(rng, 0.0, 0.3)
	for i := range c.Layers {
		if twinChance(rng, 1-least) {
			c.Layers[i].Context = math.Round(twinScale(rng, 1e2, 1e9))
		}
	}
	if !twinChance(rng, 0.2) {
		return
	}
	var last *twinGroup // of its class
	s := &p.Stages[rng.IntN(p.pipeline())]
	class := twinPick(rng, s.Groups...).Class
	for i := range p.pipeline() {
		for k := range p.Stages[i].Groups {
			if g := &p.Stages[i].Groups[k]; g.Class == class && (last == nil || g.First > last.First) {
				last = g
			}
		}
	}
	switch k := &c.Cluster.Classes[class]; rng.IntN(5) {
	case 0:
		k.Count += k.PerMachine
		last.First++
	case 1:
		k.Count += k.PerMachine
		last.Count++
	case 2, 3:
		k.PerMachine /= p.Context // which it may divide still
	case 4:
		for i := range c.Layers {
			c.Layers[i].Context = 0
		}
	}
}

// divideExperts gives layers experts: those whose replicas can divide them by a degree that it draws, and now and then one that cannot.
func (c *twinCase) divideExperts(rng *rand.Rand, faulty bool) {
	p := &c.Plan
	type place struct{ stage, layer, degree int }
	places := map[string][]place{} // by what is wrong with it
	for i := range p.Stages {
		s := &p.Stages[i]
		for layer := s.From; layer < s.To; layer++ {
			for p.Experts = 2; p.Experts <= min(16, s.Groups[0].Count); p.Experts++ {
				why := c.blocks(s, s.Strategies[layer-s.From])
				places[why] = append(places[why], place{i, layer, p.Experts})
			}
		}
	}
	kinds := slices.Sorted(maps.Keys(places))
	if p.Experts = 0; len(kinds) == 0 || kinds[0] != "" && !faulty {
		return
	}
	kind := kinds[0] // nothing is wrong
	if faulty {
		kind = twinPick(rng, kinds...)
	}
	at, odd := twinPick(rng, places[kind]...), twinChance(rng, 0.03)
	p.Experts = at.degree
	for i := range p.Stages {
		s := &p.Stages[i]
		for layer := s.From; layer < s.To; layer++ {
			if layer != at.layer && (c.blocks(s, s.Strategies[layer-s.From]) != "" || twinChance(rng, 0.2)) {
				continue
			}
			l := &c.Layers[layer]
			if l.Experts = p.Experts * (1 + rng.IntN(3)); odd {
				l.Experts++
			}
			if l.Parameters == 0 {
				l.Parameters = 1e6
			}
			l.ExpertParameters = math.Ceil(l.Parameters * twinPick(rng, rng.Float64(), rng.Float64(), 0.999, 1))
			l.ExpertBytes = math.Round(twinScale(rng, 1e2, 1e8))
		}
	}
	switch {
	case twinChance(rng, 0.03):
		p.Experts = twinPick(rng, 0, 1)
	case twinChance(rng, 0.02):
		for i := range c.Layers {
			c.Layers[i].Experts = 0
		}
	}
}

// twinSpreadLeast is how often layers are priced, or exchanges, sends and schedules counted, under each way to spread them.
var twinSpreadLeast = map[string]int{
	"context, none": 200, "context, optimizer": 200, "context, gradients": 200, "context, full": 200, "context, recomputed none": 400, "context, recomputed checkpoint": 400, "context, recomputed selective": 120, "context, a degree of its own": 150,
	"ring of a context": 700, "gather in a machine, context": 400, "ring, context": 400, "hierarchy, context": 600, "convert, context": 40, "send in a machine, context": 15, "send between machines, context": 180, "tied, context": 60, "tied in a machine, context": 4, "several groups, context": 400,
	"interleaved, context": 12, "zb-h1, context": 12, "h-1f1b, context": 8,
	"experts, none": 100, "experts, optimizer": 100, "experts, gradients": 100, "experts, full": 80, "experts, recomputed none": 200, "experts, recomputed checkpoint": 150, "experts, recomputed selective": 50, "experts, a degree of its own": 180,
	"experts, one block": 400, "experts, blocks in a machine": 10, "experts, blocks within machines": 200, "experts, blocks of whole machines": 50, "experts, ring": 15, "experts, hierarchy": 40, "experts, sent in a machine": 200, "experts, sent over machines": 200,
	"convert, experts": 100, "send in a machine, experts": 15, "send between machines, experts": 350, "tied, experts": 90, "interleaved, experts": 25, "zb-h1, experts": 12, "h-1f1b, experts": 12,
	"tensor over machines, none": 100, "tensor over machines, optimizer": 90, "tensor over machines, gradients": 100, "tensor over machines, full": 100, "tensor over machines, recomputed none": 180, "tensor over machines, recomputed checkpoint": 150, "tensor over machines, recomputed selective": 60,
	"tensor over machines, a degree of its own": 250, "gather of replicas over machines": 70, "convert, tensor over machines": 150, "send between machines, tensor over machines": 300, "tied, tensor over machines": 80, "interleaved, tensor over machines": 20, "zb-h1, tensor over machines": 10, "h-1f1b, tensor over machines": 8,
	"sequence, none": 200, "sequence, optimizer": 200, "sequence, gradients": 200, "sequence, full": 200, "sequence, recomputed none": 400, "sequence, recomputed checkpoint": 350, "sequence, recomputed selective": 120, "sequence, a degree of its own": 200,
}

// twinFaultLeast is how often plans must be refused, for each reason.
var twinFaultLeast = map[string]int{
	"replicas across machines": 10, "a degree that does not divide a machine": 100, "context with experts": 20, "context of nothing": 10, "context over machines": 10, "units of parts": 15, "machines not of units": 8,
	"experts of nothing": 5, "experts not divided": 5, "experts over groups": 8, "experts over other replicas": 30, "experts across machines": 8, "experts of a degree over machines": 4, "experts of a degree that does not divide a machine": 2,
	"a degree over machines that no layer was measured at": 20, "a degree over parts of machines": 15, "a degree over machines beside another group": 5,
}
