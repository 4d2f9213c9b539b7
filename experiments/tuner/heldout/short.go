package main

import (
	"fmt"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// short returns held-out clusters sped up, so that a round takes so many seconds by the profiles.
func short(names []string, choices cluster.Choices, rounds ...float64) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		var cases []evaluation.Case
		for _, seconds := range rounds {
			again, err := heldOut(names, choices)(catalogue)
			if err != nil {
				return nil, err
			}
			for _, c := range again {
				if err := speedUp(c.Cluster, seconds); err != nil {
					return nil, err
				}
				c.Name = fmt.Sprintf("%s, %g s", c.Name, seconds)
				cases = append(cases, c)
			}
		}
		return cases, nil
	}
}

// speedUp scales all times of a cluster.
func speedUp(c *cluster.Cluster, seconds float64) error {
	sizes := make([]int, len(c.Nodes))
	finish, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
	if err != nil {
		return err
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		points := append([]profile.Point(nil), n.Profile.Points...)
		for k := range points {
			points[k].Seconds *= seconds / finish
		}
		if n.Profile, err = profile.New(n.Profile.Device, n.Profile.Workload, points, n.Profile.Source); err != nil {
			return err
		}
		n.Network *= seconds / finish
	}
	return nil
}

// hangs returns conditions in which some failures are seen by a missed heartbeat alone, 30 s later.
func hangs() ([]evaluation.Scenario, error) {
	var scenarios []evaluation.Scenario
	for _, s := range []struct {
		name, preset string
		failures     cluster.Failures
	}{
		{"failures", "failures", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 0.3}},
		{"hangs", "steady", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 1}},
		{"rare hangs", "steady", cluster.Failures{Rate: 0.0001, Rounds: 50, Silent: 1}},
		{"bursts and hangs", "bursts", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 1}},
	} {
		c, err := cluster.Preset(s.preset)
		if err != nil {
			return nil, err
		}
		c.Failures = s.failures
		scenarios = append(scenarios, evaluation.Scenario{Name: s.name, Conditions: c})
	}
	return scenarios, nil
}
