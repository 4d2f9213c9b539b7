package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// oftenSlow has half of the nodes slow for 3 rounds in 15, as the suite orders has them.
func oftenSlow(t *testing.T) cluster.Conditions {
	t.Helper()
	c := agenttest.Conditions(t, "steady")
	c.Patterns = []cluster.Pattern{{Share: 0.5, Every: cluster.Spread{Median: 15, Sigma: 0.03}, Length: cluster.Spread{Median: 3, Sigma: 0.2}, Vary: 0.3, Excess: cluster.Spread{Median: 0.5, Sigma: 0.4}}}
	return c
}

// usual leaves the decisions to the agent's usual shares.
func usual(a *Agent) *Agent {
	a.steady.rounds = math.Inf(-1)
	return a
}

// Where spells are short and frequent, average paces save at least 1% of the time; elsewhere they seldom decide, and cost nothing.
func TestSteadyPays(t *testing.T) {
	for name, x := range map[string]struct {
		conditions  cluster.Conditions
		least, most float64 // seconds of usual shares over those with steady ones
		share       float64 // most rounds in which steady shares decide
	}{
		"often slow": {oftenSlow(t), 1.01, 1.2, 1},
		"steady":     {agenttest.Conditions(t, "steady"), 0.9995, 1.002, 0.05},
		"bursts":     {agenttest.Conditions(t, "bursts"), 0.999, 1.002, 0.02},
		"periodic":   {agenttest.Conditions(t, "periodic"), 0.999, 1.01, 0.05},
	} {
		decided := 0
		play := func(a *Agent, c *cluster.Cluster, seed uint64) (sum float64) {
			ctl := Control{Cluster: c, Runner: sim.New(c, x.conditions, seed), Policy: a}
			for range 300 {
				r, err := ctl.Round(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				sum += r.Report.Wait.Seconds()
				if a.steady.on {
					decided++
				}
			}
			return sum
		}
		gain := 0.0
		for seed := range uint64(4) {
			c := agenttest.HeldOut16(t)
			gain += play(usual(NewModel(c)), c, seed) / 4 / play(NewModel(c), c, seed)
		}
		if gain < x.least || gain > x.most || float64(decided) > x.share*1200 {
			t.Errorf("%s: %.4f times as fast with steady shares, which decide in %d of 1200 rounds", name, gain, decided)
		}
	}
}

// The averages are those of a plain twin: of the mean with a weight of 1/20, of the squared distance from it relative to it, no
// farther than four deviations.
func TestAverageOfANode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var n average
	mean, variance := 0.0, 0.0
	for k := range 200 {
		x := 1 + 0.1*rng.NormFloat64()
		if k%17 == 5 {
			x *= 3
		}
		n.add(x)
		if k == 0 {
			mean = x
			continue
		}
		d := (x - mean) / mean
		if s := math.Sqrt(variance); k > 1 && math.Abs(d) > 4*s {
			d = math.Copysign(4*s, d)
		}
		w := 0.05
		if k < 20 {
			w = 1 / float64(k)
		}
		variance = math.Max((1-w)*variance+w*d*d, 1e-6)
		mean = 0.95*mean + 0.05*x
		if math.Abs(n.slowdown-mean) > 1e-9 || math.Abs(n.variance-variance) > 1e-9 {
			t.Fatalf("after %d: %v, want %v and %v", k+1, n, mean, variance)
		}
	}
}

// It takes two standard errors in 20 judged rounds to take over, and a loss to hand back.
func TestSteadyTakesOverAndHandsBack(t *testing.T) {
	s := newSteady(2)
	for k := range 19 {
		if s.judge(0.01); s.on {
			t.Fatalf("after %d rounds", k+1)
		}
	}
	if s.judge(0.01); !s.on {
		t.Fatal("20 rounds of gain are not enough")
	}
	for range 40 { // less than it takes to take over
		s.judge(0.03)
		if s.judge(-0.02); !s.on {
			t.Fatalf("handed back with a mean of %v", s.gain.Mean)
		}
	}
	for k := 0; s.on; k++ {
		if s.judge(-0.02); k > 20 {
			t.Fatal("a loss changes nothing")
		}
	}
	for range 40 { // it gains less than two standard errors
		s.judge(0.05)
		if s.judge(-0.045); s.on {
			t.Fatalf("a mean of %v among gains and losses of 0.05 is enough", s.gain.Mean)
		}
	}
}

// A node that has recovered gets a share again, although its average is that of the slow one, and one that gets none from either
// is not judged. A job's restart keeps the averages by name.
func TestSteadySharesOfNodes(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	a := NewModel(c)
	a.tracker.SetRule(c.Collect, 3)
	for i := range a.steady.nodes {
		a.steady.nodes[i] = average{slowdown: 1, variance: 1e-6, count: 30}
	}
	a.steady.nodes[2].slowdown = 1000
	a.steady.on = true
	copy(a.fresh, []int{10, 10, 10})
	if a.steady.plan(a, nil) || a.steady.nodes[2].count != 0 {
		t.Errorf("shares %v, averages %v", a.steady.fresh, a.steady.nodes)
	}
	a.steady.nodes[2] = average{slowdown: 1000, variance: 1e-6, count: 30}
	copy(a.fresh, []int{16, 14, 0})
	if !a.steady.plan(a, nil) || a.steady.fresh[2] != 0 || a.steady.shares[2] != env.AsIs || a.steady.usual[2] != env.AsIs || a.steady.usual[0] != 16 {
		t.Errorf("shares %v, compared %v with %v", a.steady.fresh, a.steady.shares, a.steady.usual)
	}
	old := Control{Cluster: c, Policy: a}
	old.begin()
	again := c.Own()
	again.Nodes = again.Nodes[1:]
	again.Nodes[0].Name = "new"
	b := NewModel(again)
	(&Control{Cluster: again, Policy: b}).Adopt(old.Beliefs())
	if next := b.steady; next.nodes[1] != a.steady.nodes[2] || next.nodes[0] != (average{}) || !next.on {
		t.Errorf("adopted %+v", next)
	}
}

// They decide only where all nodes are waited for and speed counts.
func TestSteadyIsJudged(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*cluster.Cluster)
		weights [env.Objectives]float64
		want    bool
	}{
		"waits":    {func(*cluster.Cluster) {}, agenttest.Speed, true},
		"energy":   {func(*cluster.Cluster) {}, [env.Objectives]float64{0.4, 0, 0, 0.6}, false},
		"deadline": {func(c *cluster.Cluster) { c.Collect.AutoDeadline = true }, agenttest.Speed, false},
		"quorum":   {func(c *cluster.Cluster) { c.Collect.Quorum.Share = 0.9 }, agenttest.Speed, false},
	} {
		c := agenttest.HeldOut16(t).Own()
		x.change(c)
		a := untrained(t, 8).NewAgent(c, x.weights)
		seconds(t, c, "steady", 1, a, 0, 30, nil)
		if got := a.steady.rounds > 0; got != x.want {
			t.Errorf("%s: judged %v", name, got)
		}
	}
}

// While steady shares decide, an explanation says so, the predicted finish time is theirs, and no share leaves room for a spell that is foreseen.
func TestSteadyDecides(t *testing.T) {
	c := agenttest.HeldOut16(t).Own()
	for i := range c.Nodes {
		c.Nodes[i].Rack = fmt.Sprint(i / 4)
	}
	a := NewModel(c)
	ctl, foreseen := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "hopping"), 1), Policy: a}, 0
	for k := range 300 {
		a.steady.on, a.steady.gain.Mean, a.steady.rounds = true, 1, 100
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			continue
		}
		finish := 0.0
		for i, b := range r.Plan.Sizes {
			finish = max(finish, c.Nodes[i].Finish(a.steady.perf[i], b))
			e := a.Explain(i)
			if !e.Steady || e.After.Ahead.Ready {
				t.Fatalf("round %d, node %d: steady %v, %+v", k, i, e.Steady, e.After.Ahead)
			}
			if e.After.Ahead.Chance > 0.3 {
				foreseen++
			}
		}
		if math.Abs(r.Plan.Finish/finish-1) > 1e-9 {
			t.Fatalf("round %d: %v seconds are predicted, the shares take %v", k, r.Plan.Finish, finish)
		}
	}
	if foreseen < 20 {
		t.Errorf("%d spells were foreseen", foreseen)
	}
	a.SetWeights([env.Objectives]float64{0, 0, 0, 1})
	if _, err := ctl.Round(context.Background()); err != nil || a.Explain(0).Steady {
		t.Errorf("explained as steady where speed does not count: %v", err)
	}
}
