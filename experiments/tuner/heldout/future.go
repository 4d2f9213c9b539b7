package main

import (
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// futures are clusters in which to lose a round costs much (rounds of a second) or little, with and
// without profiles.
func futures(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
	cases, err := short([]string{"heldout-8"}, cluster.Choices{}, 1, 10)(catalogue)
	if err != nil {
		return nil, err
	}
	more, err := short([]string{"heldout-16"}, cluster.Choices{}, 3)(catalogue)
	if err != nil {
		return nil, err
	}
	hidden, err := heldOut([]string{"heldout-16"}, cluster.Choices{})(catalogue)
	if err != nil {
		return nil, err
	}
	for i := range hidden[0].Cluster.Nodes {
		n := &hidden[0].Cluster.Nodes[i]
		n.Hidden.Profile, n.Profile = n.Profile, nil
	}
	hidden[0].Name += ", no profiles"
	return append(append(cases, more...), hidden...), nil
}

// outages are steady conditions in which some nodes are of no use for a while, or for good.
func outages() ([]evaluation.Scenario, error) {
	base, err := cluster.Preset("steady")
	if err != nil {
		return nil, err
	}
	var scenarios []evaluation.Scenario
	add := func(name string, change func(*cluster.Conditions)) {
		c := base
		change(&c)
		scenarios = append(scenarios, evaluation.Scenario{Name: name, Conditions: c})
	}
	add("hangs", func(c *cluster.Conditions) { c.Failures = cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 1} })
	of := func(o cluster.Outage) func(*cluster.Conditions) {
		return func(c *cluster.Conditions) { c.Outages = []cluster.Outage{o} }
	}
	add("mute for good", of(cluster.Outage{Share: 1, Rate: 0.0002, Rounds: 1, Lasting: 1}))
	add("mute for a while", of(cluster.Outage{Share: 1, Rate: 0.001, Rounds: 60, Spread: 0.7}))
	add("flapping", of(cluster.Outage{Share: 0.25, Rate: 0.02, Rounds: 20, Spread: 0.7}))
	add("slow for a while", of(cluster.Outage{Share: 1, Rate: 0.001, Rounds: 60, Spread: 0.7, Slowdown: 25}))
	add("slow for good", of(cluster.Outage{Share: 1, Rate: 0.0002, Rounds: 1, Lasting: 1, Slowdown: 25}))
	add("joins", func(c *cluster.Conditions) { c.Joins = cluster.Joins{Share: 0.25, Rounds: 400} })
	return scenarios, nil
}
