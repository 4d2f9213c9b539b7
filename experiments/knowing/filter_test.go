package main

import (
	"math"
	"testing"
)

// Two measurements by hand: the posterior of two independent normal numbers given their sum with noise, twice.
func TestObserveByHand(t *testing.T) {
	n := state{levels: 0.04, drifts: 0.01}
	n.observe(0.3, 0.05) // of .10 in all, .4 is the level's and .1 the drift's
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-12 }
	if !near(n.level, 0.12) || !near(n.drift, 0.03) || !near(n.levels, 0.04-0.016) || !near(n.drifts, 0.01-0.001) || !near(n.together, -0.004) {
		t.Fatalf("%+v", n)
	}
	// Var of the sum is .024 + .009 - .008 = .025; the level's covariance with it .02, the drift's .005; with the noise .075.
	n.observe(0.3, 0.05)
	if off := 0.15; !near(n.level, 0.12+0.02/0.075*off) || !near(n.drift, 0.03+0.005/0.075*off) || !near(n.levels, 0.024-0.02*0.02/0.075) || !near(n.together, -0.004-0.02*0.005/0.075) {
		t.Fatalf("%+v", n)
	}
}

// Measurements that cannot be are spikes, unless three in a row say the same.
func TestSpikes(t *testing.T) {
	n := state{levels: 0.0001}
	for k := range 3 {
		n.observe(1, 0.0001)
		if moved := n.level != 0; moved != (k == 2) {
			t.Errorf("measurement %d: level %v", k+1, n.level)
		}
	}
	n = state{levels: 0.0001}
	n.observe(1, 0.0001)
	n.observe(0.01, 0.0001)
	n.observe(1, 0.0001)
	n.observe(1, 0.0001)
	if math.Abs(n.level-0.005) > 1e-12 {
		t.Errorf("level %v", n.level)
	}
}
