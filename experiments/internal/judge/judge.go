// Package judge scores policies that an experiment trained: on held-out clusters of 16 and
// 32 nodes under every kind of conditions, with quorum all and with quorum and grace free.
package judge

import (
	"context"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/env"
)

// Trials per cluster and scenario.
const (
	Seeds  = 10
	Rounds = 300
)

// Setting is a way to collect gradients.
type Setting struct {
	Name    string
	choices cluster.Choices
}

// Settings lists those in which policies are judged.
var Settings = []Setting{
	{"quorum all", cluster.Choices{}},
	{"quorum and grace free", cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}},
}

// Scenarios names the conditions.
var Scenarios = []string{"steady", "drift", "interference", "bursts", "failures"}

// Progress returns goodput over that of the state oracle, which waits for all: a list over
// seeds for every cluster and scenario, scenarios within clusters.
func Progress(ctx context.Context, trained *agent.Trained, s Setting) ([][]float64, error) {
	policies, err := evaluation.Find([]string{"ddqn"})
	if err != nil {
		return nil, err
	}
	config := evaluation.Config{Trained: trained, Policies: policies, Seeds: Seeds, Rounds: Rounds}
	for _, name := range []string{"heldout-16", "heldout-32"} {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err != nil {
			return nil, err
		}
		c.Choices = s.choices
		config.Cases = append(config.Cases, evaluation.Case{Name: name, Cluster: c, Weights: [env.Objectives]float64{1}})
	}
	for _, name := range Scenarios {
		c, err := cluster.Preset(name)
		if err != nil {
			return nil, err
		}
		config.Scenarios = append(config.Scenarios, evaluation.Scenario{Name: name, Conditions: c})
	}
	lines, err := evaluation.Compare(ctx, config)
	if err != nil {
		return nil, err
	}
	var strata [][]float64
	for _, l := range lines {
		if l.Cluster != "all" {
			strata = append(strata, l.Ratios())
		}
	}
	return strata, nil
}
