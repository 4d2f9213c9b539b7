package agent

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// The network overrules the model from an advantage that grows with the node's noise.
func TestAdvantageGrowsWithNoise(t *testing.T) {
	c := agenttest.Lines(t, 60, 0.1, 0.1)
	trained := untrained(t, 4)
	trained.Record.Advantage = 0.1
	a := trained.NewAgent(c, agenttest.Speed)
	sizes, rng := make([]int, 2), rand.New(rand.NewPCG(1, 1))
	var report *cluster.Report
	for range 40 {
		if err := a.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
		quiet, noisy := 0.5+0.1*float64(sizes[0]), (0.5+0.1*float64(sizes[1]))*math.Exp(0.15*rng.NormFloat64())
		report = agenttest.Measured(sizes, quiet, noisy)
	}
	noise := a.tracker.Noise(1)
	if a.tracker.Noise(0) != 1 || noise < 2 {
		t.Fatalf("noise %v and %v", a.tracker.Noise(0), noise)
	}
	per := len(env.Actions)
	for k, x := range []struct {
		advantage float32
		overruled [2]bool
	}{
		{0.09, [2]bool{false, false}}, {0.11, [2]bool{true, false}},
		{0.1 * float32(noise) * 0.9, [2]bool{true, false}}, {0.1 * float32(noise) * 1.1, [2]bool{true, true}},
		// where all are waited for half of it is enough
		{0.045, [2]bool{false, false}}, {0.055, [2]bool{true, false}},
		{0.05 * float32(noise) * 0.9, [2]bool{true, false}}, {0.05 * float32(noise) * 1.1, [2]bool{true, true}},
	} {
		a.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Count: 1 + k/4}}, 2)
		const better = 2
		a.model[0], a.model[1] = 0, 0
		copy(a.actions, a.model)
		clear(a.values.q)
		for i := range 2 {
			a.values.q[i*per+better] = x.advantage
		}
		a.choose()
		if got := [2]bool{a.actions[0] == better, a.actions[1] == better}; got != x.overruled {
			t.Errorf("advantage %v: overruled %v, want %v", x.advantage, got, x.overruled)
		}
	}
}

// The network does not decide about a node with strong noise.
func TestStrongNoiseIsLeftToTheModel(t *testing.T) {
	c := agenttest.Lines(t, 60, 0.1, 0.1)
	a := untrained(t, 4).NewAgent(c, agenttest.Speed)
	sizes, rng := make([]int, 2), rand.New(rand.NewPCG(1, 2))
	var report *cluster.Report
	for range 60 {
		if err := a.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
		report = agenttest.Measured(sizes, 0.5+0.1*float64(sizes[0]), (0.5+0.1*float64(sizes[1]))*math.Exp(0.5*rng.NormFloat64()))
	}
	const better = 2
	a.model[0], a.model[1] = 0, 0
	copy(a.actions, a.model)
	clear(a.values.q)
	for i := range 2 {
		a.values.q[i*len(env.Actions)+better] = 1e6
	}
	if a.choose(); a.actions[0] != better || a.actions[1] != 0 {
		t.Errorf("actions %v at noise %v and %v, want the network's and the model's", a.actions, a.tracker.Noise(0), a.tracker.Noise(1))
	}
}

// A quorum of two nodes is all if two are present.
func TestQuorumAmongThosePresent(t *testing.T) {
	feature := slices.Index(env.FeatureNames, "quorum in force")
	for _, x := range []struct {
		present []bool
		all     bool
	}{{nil, false}, {[]bool{true, true, true}, false}, {[]bool{true, true, false}, true}} {
		c := agenttest.Lines(t, 60, 0.1, 0.1, 0.1)
		c.Collect.Quorum.Count = 2
		a := untrained(t, 4).NewAgent(c, agenttest.Speed)
		sizes := make([]int, 3)
		var report *cluster.Report
		for range 2 {
			if err := a.Decide(report, x.present, &cluster.Plan{Sizes: sizes, Collect: c.Collect}); err != nil {
				t.Fatal(err)
			}
			report = agenttest.Measured(sizes, 3, 3, 3)
		}
		everybody := untrained(t, 4).NewAgent(c, agenttest.Speed)
		if err := everybody.Decide(agenttest.Measured([]int{20, 20, 20}, 3, 3, 3), nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
		if got := a.rows[feature] == everybody.rows[feature]; got != x.all {
			t.Errorf("present %v: quorum %v, of everybody %v", x.present, a.rows[feature], everybody.rows[feature])
		}
	}
}

// An explanation speaks of the rule only if it is free.
func TestExplainFixedRule(t *testing.T) {
	c := agenttest.HeldOut16(t)
	a := untrained(t, 4).NewAgent(c, agenttest.Speed)
	run := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "steady"), 4), Policy: a}
	for range 2 {
		if _, err := run.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if e := a.Explain(0); e.Chosen == nil || e.Rule != nil {
		t.Errorf("%+v", e)
	}
}

// An absent node's overhead does not lengthen the round that sizes are kept for.
func TestDeadBandWithoutTheAbsent(t *testing.T) {
	c := agenttest.Lines(t, 600, 0.1, 0.1, 0.1)
	perf, sizes := c.Nominal(), make([]int, 3)
	perf[2].Overhead = 1000
	fresh := []int{300, 300, 0}
	d := deadBand{}
	finish := d.apply(c, perf, c.Nodes[0].Finish(perf[0], 300), fresh, sizes)
	perf[0].PerSample *= 1.0001
	if got, want := d.apply(c, perf, finish, []int{299, 301, 0}, sizes), c.Nodes[0].Finish(perf[0], 300); got != want || !slices.Equal(sizes, fresh) {
		t.Errorf("sizes %v in %v s, want %v in %v s", sizes, got, fresh, want)
	}
}

// The values of rules in an explanation are the averages, weighted; Next is the best of the other rules that are allowed.
func TestExplainRuleValues(t *testing.T) {
	trained, c := choosing(t)
	weights := [env.Objectives]float64{0.6, 0.3, 0.1}
	a := trained.NewAgent(c, weights)
	run := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "bursts"), 4), Policy: a}
	for range 20 {
		if _, err := run.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	means := a.believes().Means()
	worth := func(rule int) (value float64) {
		for o, w := range weights {
			value += w * means[rule][o]
		}
		return value
	}
	got := a.Explain(0).Rule
	if got.Chosen.Mean != means[a.rule] || math.Abs(got.Chosen.Value-worth(a.rule)) > 1e-12 {
		t.Errorf("%+v, want mean %v, value %v", got.Chosen, means[a.rule], worth(a.rule))
	}
	best := math.Inf(-1)
	for _, rule := range a.allowed {
		if rule != a.rule {
			best = max(best, worth(rule))
		}
	}
	if math.Abs(got.Next.Value-best) > 1e-12 {
		t.Errorf("next %+v, the best other rule has %v", got.Next, best)
	}
	a.rule = 0
	if a.Explain(0).Rule == nil {
		t.Error("the first rule is not explained")
	}
}
