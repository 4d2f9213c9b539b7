package main

import (
	"context"
	"fmt"
	"strings"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/stats"
)

// told is the agent's rule that is told a part of the truth.
type told struct {
	agent.Policy
	cluster  *cluster.Cluster
	sim      *sim.Simulator
	base     []cluster.Performance
	perf     []cluster.Performance
	sizes    []int
	alloc    cluster.Allocator
	pace     bool    // every node's of this round
	deadline bool    // in which knowing the round's noise would make the global batch
	overtime float64 // of the deadline
	reserve  float64
}

func (p *told) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if err := p.Policy.Decide(report, present, plan); err != nil {
		return err
	}
	plan.Collect.Overtime, plan.Collect.Reserve = p.overtime, p.reserve
	truth := p.sim.Truth()
	for i := range p.perf {
		p.perf[i] = p.base[i]
		p.perf[i].PerSample *= truth.Slowdown[i] * truth.Factor[i]
	}
	if p.deadline {
		finish, err := p.alloc.Allocate(p.cluster, present, p.perf, p.sizes)
		if err != nil {
			return err
		}
		plan.Finish = finish
		plan.Collect.Deadline, plan.Collect.AutoDeadline = max(1, duration(finish)), false
	}
	if p.pace {
		plan.Perf = p.perf
	}
	return nil
}

// parts prints what each part of the truth would be worth to the rule.
func parts(ctx context.Context, seeds int) error {
	const count = 30
	cs, err := draw(count)
	if err != nil {
		return err
	}
	tell := func(pace, deadline bool, overtime, reserve float64) policy {
		return func(c *cluster.Cluster, s *sim.Simulator) agent.Policy {
			return &told{Policy: agent.NewModel(c), cluster: c, sim: s, base: c.Nominal(), perf: c.Nominal(), sizes: make([]int, len(c.Nodes)), pace: pace, deadline: deadline, overtime: overtime, reserve: reserve}
		}
	}
	names := []string{"hindsight", "the rule", "told the pace of the round", "told the best deadline of the round", "told both", "reserve 0", "reserve 0.1", "overtime 3%", "overtime 6%", "overtime 10%", "overtime 16%", "overtime 30%"}
	policies := []policy{hindsight, tell(false, false, 0, 0.02), tell(true, false, 0, 0.02), tell(false, true, 0, 0.02), tell(true, true, 0, 0.02), tell(false, false, 0, 0), tell(false, false, 0, 0.1)}
	for _, o := range []float64{0.03, 0.06, 0.1, 0.16, 0.3} {
		policies = append(policies, tell(false, false, o, 0.02))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Share of hindsight, mean over %d clusters of the training split (4 to 64 nodes), %d seeds of %d rounds; in brackets how much later than the deadline rounds end, in the mean.\n\n| |", count, seeds, rounds)
	variants := []struct {
		name   string
		preset string
		change func(c *cluster.Conditions)
	}{
		{"steady", "steady", func(*cluster.Conditions) {}},
		{"without spikes", "steady", func(c *cluster.Conditions) { c.Spikes = cluster.Spikes{} }},
		{"without noise", "steady", func(c *cluster.Conditions) { c.Noise = cluster.Spread{} }},
		{"bursts", "bursts", func(*cluster.Conditions) {}},
		{"production", "production", func(*cluster.Conditions) {}},
	}
	cells := make([][]string, len(names))
	for _, v := range variants {
		fmt.Fprintf(&b, " %s |", v.name)
		conditions, err := cluster.Preset(v.preset)
		if err != nil {
			return err
		}
		conditions.Scale = cluster.NoiseScale{}
		v.change(&conditions)
		o, err := compare(ctx, cs, conditions, seeds, policies)
		if err != nil {
			return err
		}
		for k := range names {
			cells[k] = append(cells[k], fmt.Sprintf("%.4f (%.1f%%)", stats.Bootstrap(o[k].share).Mean, 100*o[k].late))
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(variants)) + "\n")
	for k, name := range names {
		if k > 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(cells[k], " | "))
		}
	}
	fmt.Print(b.String())
	return nil
}
