package baseline

import (
	"slices"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// shares plays rounds in which node i's time is multiplied by slow(i, round), and returns the sizes of every round.
func shares(t *testing.T, c *cluster.Cluster, p agent.Policy, rounds int, slow func(node, round int) float64) [][]int {
	t.Helper()
	var all [][]int
	var report *cluster.Report
	plan := &cluster.Plan{Sizes: make([]int, len(c.Nodes))}
	for k := range rounds {
		if err := p.Decide(report, nil, plan); err != nil {
			t.Fatal(err)
		}
		seconds := make([]float64, len(c.Nodes))
		for i, b := range plan.Sizes {
			seconds[i] = (0.5 + 0.1*float64(b)) * slow(i, k) * (1 + 0.01*float64((k*(i+3))%5))
		}
		report = agenttest.Measured(plan.Sizes, seconds...)
		all = append(all, slices.Clone(plan.Sizes))
	}
	return all
}

// Every rule of thumb has a small share ready in the round in which a spell begins that it can foretell, and the usual one in a quiet round; without its
// hyperparameter it is water-filling. A spike is no spell.
func TestForetoldSpells(t *testing.T) {
	c := agenttest.Lines(t, 160, 0.1, 0.1, 0.1, 0.1)
	c.Nodes[0].Rack, c.Nodes[1].Rack, c.Nodes[2].Rack, c.Nodes[3].Rack = "a", "a", "a", "b"
	fill := WaterFill{Gain: 0.3, CUSUM: 4}
	begins := []int{20, 50, 71, 110, 134, 175}
	within := func(k, from, rounds int) bool { return k >= from && k < from+rounds }
	for name, x := range map[string]struct {
		config       Foretold
		slow         func(node, round int) float64
		begin, quiet int // of node 1
	}{
		"period": {Foretold{WaterFill: fill, Window: 0.1}, func(i, k int) float64 {
			switch {
			case i == 1 && k >= 20 && k%20 < 2:
				return 3
			case i == 1 && k%20 == 9:
				return 2
			}
			return 1
		}, 160, 176},
		"the node before": {Foretold{WaterFill: fill, Window: 0.2, Before: true}, func(i, k int) float64 {
			for _, b := range begins {
				if i == 0 && within(k, b, 4) || i == 1 && within(k, b+8, 4) {
					return 3
				}
			}
			return 1
		}, 175 + 8, 170},
		"signs": {Foretold{WaterFill: fill, Sign: 1.5}, func(i, k int) float64 {
			for _, b := range begins {
				if i == 1 && within(k, b-2, 2) {
					return 1.15
				} else if i == 1 && within(k, b, 6) {
					return 3
				}
			}
			return 1
		}, 175, 165},
	} {
		sizes := shares(t, c, NewForetold(c, x.config), 200, x.slow)
		if ready, usual := sizes[x.begin][1], sizes[x.quiet][1]; ready > 20 || usual < 36 {
			t.Errorf("%s: a share of %d when the spell begins, %d in a quiet round", name, ready, usual)
		}
		x.config.Window, x.config.Sign = 0, 0
		if plain := shares(t, c, NewWaterFill(c, fill), 200, x.slow); !slices.EqualFunc(plain, shares(t, c, NewForetold(c, x.config), 200, x.slow), slices.Equal) {
			t.Errorf("%s: without its hyperparameter it is not water-filling", name)
		}
	}
	// Spells without a period foretell none.
	random := []int{15, 22, 60, 71, 120, 128, 170}
	for k, sizes := range shares(t, c, NewForetold(c, Foretold{WaterFill: fill, Window: 0.1}), 200, func(i, k int) float64 {
		if i == 1 && slices.ContainsFunc(random, func(b int) bool { return within(k, b, 3) }) {
			return 3
		}
		return 1
	}) {
		if sizes[1] < 30 && !slices.ContainsFunc(random, func(b int) bool { return within(k, b, 12) }) {
			t.Errorf("round %d: a share of %d", k, sizes[1])
		}
	}
	// A node of another rack is not made ready.
	apart := shares(t, c, NewForetold(c, Foretold{WaterFill: fill, Window: 0.2, Before: true}), 200, func(i, k int) float64 {
		for _, b := range begins {
			if i == 2 && within(k, b, 4) || i == 3 && within(k, b+8, 4) {
				return 3
			}
		}
		return 1
	})
	if got := apart[175+8][3]; got < 36 {
		t.Errorf("another rack's node has %d", got)
	}
}
