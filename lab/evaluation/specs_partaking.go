package evaluation

import (
	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// The rule of who takes part, tuned as the baselines are.
var (
	partLosses = []float64{1, 2, 3}
	partFirst  = []float64{1, 2, 4, 8, 16, 32, 64, 128}
	partGrowth = []float64{1, 1.5, 2, 4}
	partLast   = []float64{64, 256, 1024}
	partCost   = []float64{0, 1, 3, 10, 30, 100}
	partLeast  = []float64{0, 1, 3, 10, 30}
)

// byLosses is the rule as it was before it learnt rates.
var byLosses = agent.Partaking{Losses: 2, First: 8, Growth: 2, Last: 1024, Cost: 100, Least: 30}

func tunedPartaking() Spec {
	d := byLosses
	params := []Hyperparameter{
		numbers("losses", float64(d.Losses), partLosses...), numbers("first", float64(d.First), partFirst...), numbers("growth", d.Growth, partGrowth...),
		numbers("last", float64(d.Last), partLast...), numbers("cost", d.Cost, partCost...), numbers("least", d.Least, partLeast...),
	}
	s := tuned("model-partaking", "the agent's fallback rule, with the rule of who takes part tuned", params, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.WithPartaking(agent.NewModel(c), agent.Partaking{
			Losses: int(partLosses[at[0]]), First: int(partFirst[at[1]]), Growth: partGrowth[at[2]],
			Last: int(partLast[at[3]]), Cost: partCost[at[4]], Least: partLeast[at[5]],
		})
	})
	s.Deadline = true
	return s
}

func lossesPartaking() Spec {
	s := untuned("model-losses", "the agent's fallback rule, where two losses leave a node out and the wait grows by constants", func(c *cluster.Cluster) agent.Policy {
		return baseline.WithPartaking(agent.NewModel(c), byLosses)
	})
	s.Deadline = true
	return s
}

func returns() Spec {
	return Spec{Name: "model-returns", About: "the agent's fallback rule, which knows when a node that is left out is of use again", Bound: true, Deadline: true,
		create: func(c *cluster.Cluster, s *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, _ int) agent.Policy {
			return baseline.WithPartaking(agent.NewModel(c), baseline.Returns(s))
		}}
}
