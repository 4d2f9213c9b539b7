package baseline_test

import (
	"context"
	"math"
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
	"evenkeel/lab/evaluation"
)

// goodput is what an oracle reaches, averaged over seeds.
func goodput(t *testing.T, c *cluster.Cluster, conditions cluster.Conditions, config baseline.Oracle) float64 {
	t.Helper()
	sum := 0.0
	const seeds = 8
	for seed := range uint64(seeds) {
		s := sim.New(c, conditions, seed)
		score, err := evaluation.Play(context.Background(), c, s, baseline.NewOracle(c, s, config), 150, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum += score.Goodput / seeds
	}
	return sum
}

// What an oracle knows more is worth something. Noise is left out: it is as large as
// what one round of drift is worth, and the state oracle is the best only on average.
func TestOraclesAreOrdered(t *testing.T) {
	c := agenttest.HeldOut16(t)
	for _, name := range []string{"drift", "interference", "bursts"} {
		conditions := agenttest.Conditions(t, name)
		conditions.Noise, conditions.Spikes = cluster.Spread{}, cluster.Spikes{}
		now, lag := goodput(t, c, conditions, baseline.Oracle{}), goodput(t, c, conditions, baseline.Oracle{Lag: 1})
		if !(now > lag) {
			t.Errorf("%s: state oracle %v, lag-1 %v", name, now, lag)
		}
	}
	steady := agenttest.Conditions(t, "steady")
	plain := goodput(t, c, steady, baseline.Oracle{})
	if room := goodput(t, c, steady, baseline.Oracle{Margin: 1.25}); !(room > 1.005*plain) {
		t.Errorf("steady: room for noise gives %v, none %v", room, plain)
	}
}

// Without noise the state oracle's round takes what the allocation by the true rates
// says: no allocation is faster. Hidden profiles and slowdowns are known to it.
func TestOracleKnowsTheTruth(t *testing.T) {
	c := agenttest.Lines(t, 64, 0.1, 0.2, 0.3, 0.1)
	c.Nodes[1].Profile, c.Nodes[1].Hidden.Profile = nil, c.Nodes[1].Profile
	c.Nodes[2].Hidden.Slowdown = 2.5
	conditions := agenttest.Conditions(t, "interference")
	conditions.Noise, conditions.Spikes = cluster.Spread{}, cluster.Spikes{}
	conditions.Episodes[0].Rate = 0.05
	s := sim.New(c, conditions, 4)
	ctl := agent.Control{Cluster: c, Runner: s, Policy: baseline.NewOracle(c, s, baseline.Oracle{})}
	known := c.Revealed()
	perf, sizes := known.Nominal(), make([]int, 4)
	for range 100 {
		for i, slow := range s.Truth().Slowdown {
			perf[i].PerSample = known.Nodes[i].Profile.PerSample() * slow
		}
		want, err := cluster.Allocate(known, nil, perf, sizes)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Report.Wait.Seconds(); math.Abs(got-want) > 1e-8 {
			t.Fatalf("round %d took %v s, the true rates allow %v", r.Report.Round, got, want)
		}
	}
}
