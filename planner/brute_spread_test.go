package planner_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"evenkeel/planner"
	"evenkeel/planner/costmodel"
)

// spreadsOf are all degrees of contexts and of experts that plans of the case may have; 0: none.
func (c *twinCase) spreadsOf() []costmodel.Spread {
	all := []costmodel.Spread{{}}
	if c.Options.DeepSpeed {
		return all // its configuration has neither: plan export refuses such plans
	}
	largest := 0
	for _, k := range c.Cluster.Classes {
		largest = max(largest, k.Count)
	}
	for of := 2; of <= largest; of++ {
		if slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Context > 0 }) && slices.ContainsFunc(c.Cluster.Classes, func(k twinClass) bool { return k.PerMachine%of == 0 }) {
			all = append(all, costmodel.Spread{Context: of})
		}
		if slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Experts > 0 }) && !slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Experts%of != 0 }) {
			all = append(all, costmodel.Spread{Experts: of})
		}
	}
	return all
}

// wide says whether replicas of the group take several machines.
func (b *brute) wide(g twinGroup) bool { return g.Tensor > b.Cluster.Classes[g.Class].PerMachine }

// measured says whether some layer was at the degree of a group over several machines.
func (b *brute) measured(g twinGroup) bool {
	key := twinKey{g.Class, g.Tensor, g.Tensor / b.Cluster.Classes[g.Class].PerMachine}
	return slices.ContainsFunc(b.Layers, func(l twinLayer) bool { return len(l.Runs[key]) > 0 })
}

// bruteSpread lets plans of a job spread layers in more ways, of which most cost little.
func (c *twinCase) bruteSpread(rng *rand.Rand) {
	c.spreads = true
	kind := twinPick(rng, "context", "experts", "experts", "both")
	if kind != "experts" {
		for i := range c.Layers {
			if twinChance(rng, 0.7) {
				c.Layers[i].Context = math.Round(twinScale(rng, 1e3, 1e7))
			}
		}
	}
	if kind != "context" {
		degree, scale := twinPick(rng, 2, 2, 3, 4), twinPick(rng, 1.0, 3, 6) // experts have many parameters
		tied := c.Layers[len(c.Layers)-1].Tied
		for i := range c.Layers {
			if l := &c.Layers[i]; l.Parameters-tied > 10 && twinChance(rng, 0.7) { // tied parameters are no experts'
				l.Parameters *= scale
				l.Experts, l.ExpertBytes = degree*(1+rng.IntN(2)), math.Round(twinScale(rng, 1e2, 1e6))
				l.ExpertParameters = math.Floor((l.Parameters - tied) * (0.6 + 0.4*rng.Float64()))
			}
		}
	}
	if twinChance(rng, 0.7) {
		for class, k := range c.Cluster.Classes {
			for machines := 2; machines <= k.Count/k.PerMachine; machines++ {
				for _, l := range c.Layers {
					c.widen(rng, l, class, machines)
				}
			}
		}
	}
	if twinChance(rng, 0.5) {
		c.sequence(rng)
	}
}

// widen measures a layer over so many machines.
func (c *twinCase) widen(rng *rand.Rand, l twinLayer, class, machines int) {
	per := c.Cluster.Classes[class].PerMachine
	key := twinKey{class, per * machines, machines}
	if twinChance(rng, 0.1) || len(l.Runs[key]) > 0 {
		return // equal layers share their measurements
	}
	faster := math.Pow(float64(machines), twinPick(rng, 0.3, 0.85, 1))
	for _, r := range l.Runs[twinKey{class, per, 1}] {
		r.Forward, r.Backward, r.Update, r.Core = r.Forward/faster, r.Backward/faster, r.Update/float64(machines), r.Core/faster
		r.Activation, r.Freed = math.Ceil(r.Activation/float64(machines)), math.Floor(r.Freed/float64(machines))
		l.Runs[key] = append(l.Runs[key], r)
	}
}

// countWays counts the ways in which a plan spreads layers.
func (c *twinCase) countWays(ways map[string]int, p *planner.Plan) {
	if p.Context > 1 {
		ways["context"]++
	}
	if p.Experts > 1 {
		ways["experts"]++
	}
	for _, s := range p.Stages {
		for _, g := range s.Groups {
			k := c.Cluster.Classes[slices.IndexFunc(c.Cluster.Classes, func(k twinClass) bool { return k.Device == g.Device })]
			if g.Tensor > k.PerMachine {
				ways["groups' degrees over machines"]++
			}
			if slices.ContainsFunc(s.Strategies, func(y planner.Strategy) bool { return y.Tensor > k.PerMachine }) {
				ways["layers' degrees over machines"]++
			}
		}
	}
}

// simulate takes the chosen stages as the best if they are.
func (b *brute) simulate() {
	var stages []twinPrice
	b.Plan.Stages = nil
	for _, s := range slices.Backward(b.behind) {
		p := twinPrice{Forward: s.forward, Backward: s.backward, Send: s.send, Sync: s.once}
		stages = append(stages, p)
		b.Plan.Stages = append(b.Plan.Stages, s.twinStage)
	}
	for i := range stages {
		stages[i].Sync += b.tie(i)
	}
	b.tried++
	if seconds := twinSimulate(stages, b.micro); seconds < b.limit {
		b.limit = seconds
		p := twinPlan{GlobalBatch: b.Plan.GlobalBatch, MicroBatch: b.Plan.MicroBatch, Context: b.Plan.Context, Experts: b.Plan.Experts}
		for _, s := range slices.Backward(b.behind) {
			s.Strategies, s.Groups = s.strategies, slices.Clone(s.Groups)
			for i := range s.Groups { // in devices again
				s.Groups[i].First *= max(1, p.Context)
				s.Groups[i].Count *= max(1, p.Context)
			}
			p.Stages = append(p.Stages, s.twinStage)
		}
		b.best = &p
	}
}
