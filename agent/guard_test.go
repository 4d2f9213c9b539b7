package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/agent/internal/agenttest"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// seconds is how long a policy's rounds take in all on a simulated cluster, from a round on.
func seconds(t *testing.T, c *cluster.Cluster, conditions string, seed uint64, p Policy, from, rounds int, each func()) float64 {
	t.Helper()
	ctl := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, conditions), seed), Policy: p}
	sum := 0.0
	for k := range rounds {
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if k >= from {
			sum += r.Report.Wait.Seconds()
		}
		if each != nil {
			each()
		}
	}
	return sum
}

// Networks of random weights that cost 2 to 50% of the time lose their say, and what they cost from
// round 60 on is little.
func TestGuardFiresOnAWrongNetwork(t *testing.T) {
	for _, x := range []struct {
		net        uint64
		conditions string
		cost       float64 // at least, without the guard
	}{{0, "steady", 0.02}, {1, "drift", 0.015}, {4, "bursts", 0.3}, {13, "bursts", 0.3}} {
		wrong := untrained(t, 8)
		var err error
		if wrong.Network, err = ddqn.NewNetwork(wrong.Network.Spec(), rand.New(rand.NewPCG(x.net, 3))); err != nil {
			t.Fatal(err)
		}
		c := agenttest.HeldOut16(t)
		a, free := wrong.NewAgent(c, agenttest.Speed), wrong.NewAgent(c, agenttest.Speed)
		off := 0
		with := seconds(t, c, x.conditions, 1, a, 60, 240, func() {
			if a.guard.off {
				off++
			}
		})
		model := seconds(t, c, x.conditions, 1, NewModel(c), 60, 240, nil)
		without := seconds(t, c, x.conditions, 1, free, 60, 240, func() { free.guard = guard{} })
		if e := a.Explain(3); e.Guarded != a.guard.off {
			t.Errorf("explained as guarded: %v", e.Guarded)
		}
		if off < 180 || a.Fallbacks < 180 {
			t.Errorf("network %d, %s: off in %d rounds, %d fallbacks", x.net, x.conditions, off, a.Fallbacks)
		}
		if with > 1.005*model || without < (1+x.cost)*model {
			t.Errorf("network %d, %s: %.3f of the model's time, %.3f without the guard", x.net, x.conditions, with/model, without/model)
		}
	}
}

// The embedded policy keeps its say on clusters that it was not trained on: where it is taken away by chance that costs
// nothing.
func TestGuardLeavesAGoodNetworkAlone(t *testing.T) {
	fired, runs := 0, 0
	with, without := 0.0, 0.0
	for _, conditions := range []string{"steady", "drift", "interference", "bursts", "diurnal"} {
		for seed := range uint64(4) {
			c := agenttest.HeldOut16(t)
			a, free := embeddedPolicy(t).NewAgent(c, agenttest.Speed), embeddedPolicy(t).NewAgent(c, agenttest.Speed)
			off := false
			with += seconds(t, c, conditions, seed, a, 0, 200, func() { off = off || a.guard.off })
			without += seconds(t, c, conditions, seed, free, 0, 200, func() { free.guard = guard{} })
			if runs++; off {
				fired++
			}
			if a.guard.rounds < 5 {
				t.Errorf("%s, seed %d: judged in %v rounds", conditions, seed, a.guard.rounds)
			}
		}
	}
	if fired > runs/10 || with > 1.001*without {
		t.Errorf("fired in %d of %d runs, which took %.4f of the time without it", fired, runs, with/without)
	}
}

// Two nodes took 2 and 3 s for 10 samples each; a third of a node's time is overhead. With 12 and 8 samples they would have taken
// 34/15 and 2.6 s: the one that decided lost two fifteenths.
func TestGuardByHand(t *testing.T) {
	tracker := env.NewTracker(agenttest.Lines(t, 20, 0.1, 0.1))
	report := func(seconds ...float64) *cluster.Report {
		r := &cluster.Report{Wait: 3 * time.Second, Accepted: 20}
		for _, s := range seconds {
			r.Nodes = append(r.Nodes, cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Seconds: s})
		}
		return r
	}
	lost := math.Log(3 / 2.6)
	g := guard{sizes: []int{12, 8}, pending: true}
	g.judge(tracker, report(2, 3))
	if math.Abs(g.regret.Mean-lost) > 1e-9 || g.rounds != 1 || g.pending || g.off {
		t.Fatalf("%+v, want a mean of %v", g, lost)
	}
	if g.judge(tracker, report(2, 3)); g.rounds != 1 {
		t.Error("judged by nothing")
	}
	for name, change := range map[string]func(r *cluster.Report){
		"late": func(r *cluster.Report) { r.Nodes[0].Status = cluster.Late }, "lost": func(r *cluster.Report) { r.Nodes[1].Status = cluster.Lost },
		"old": func(r *cluster.Report) { r.Nodes[0].Behind = 1 }, "unknown": func(r *cluster.Report) { r.Nodes[0].Seconds = 0 },
	} {
		r := report(2, 3)
		change(r)
		g.pending = true
		if g.judge(tracker, r); g.rounds != 1 || g.pending {
			t.Errorf("a round with a node that is %s is judged: %+v", name, g)
		}
	}
	for k := range 9 { // always the same loss: the tenth round is the first that may decide
		if g.off {
			t.Fatalf("off after %v rounds", g.rounds)
		}
		g.pending = true
		g.judge(tracker, report(2, 3))
		if want := k == 8; g.off != want {
			t.Fatalf("off %v after %v rounds", g.off, g.rounds)
		}
	}
	// Now the sizes kept are the network's, and it still loses: the model's rounds of 2.6 s would have been 3 s long.
	g.sizes, g.pending = []int{10, 10}, true
	r := report(34.0/15, 2.6)
	r.Nodes[0].Size, r.Nodes[1].Size = 12, 8
	if g.judge(tracker, r); !g.off || math.Abs(g.regret.Mean-lost) > 1e-9 {
		t.Errorf("%+v", g)
	}
	for k := range 200 { // it would be faster from now on
		g.pending, g.sizes = true, []int{12, 8}
		if g.judge(tracker, report(2, 3)); !g.off {
			if k < 5 {
				t.Errorf("back after %d rounds", k+1)
			}
			return
		}
	}
	t.Error("the network never gets the decision back")
}

// Losses that noise explains do not count: three standard errors.
func TestGuardAllowsNoise(t *testing.T) {
	for mean, want := range map[float64]bool{0.0031: true, 0.0029: false} { // sd 0.01, of which the standard error is a tenth
		g := guard{rounds: 1e6, sizes: []int{10}, pending: true}
		tracker := env.NewTracker(agenttest.Lines(t, 10, 0.1))
		r := &cluster.Report{Wait: time.Second, Nodes: []cluster.NodeReport{{Status: cluster.In, Size: 10, Samples: 10, Seconds: 1}}}
		g.regret.Mean = mean / 0.98 // a round of the same sizes takes a fiftieth off
		g.regret.Spread = (0.0001*(2-0.02)/0.02/100 - 0.02*0.98*g.regret.Mean*g.regret.Mean) / 0.98
		g.judge(tracker, r)
		if g.off != want || math.Abs(g.regret.Mean-mean) > 1e-9 {
			t.Errorf("mean %v, %+v: want off %v", mean, g, want)
		}
	}
}

// A large fleet is judged in some rounds only; preferences other than speed are not judged.
func TestGuardIsDue(t *testing.T) {
	for nodes, want := range map[int]int{10: 1, 1024: 1, 1025: 2, 10_000: 10} {
		var g guard
		for k := 1; !g.due(nodes); k++ {
			if k > 20 {
				t.Fatalf("%d nodes: never", nodes)
			}
			want--
		}
		if want != 1 {
			t.Errorf("%d nodes: off by %d rounds", nodes, want-1)
		}
	}
	c := agenttest.HeldOut16(t)
	a := untrained(t, 8).NewAgent(c, [env.Objectives]float64{0.4, 0.6})
	seconds(t, c, "steady", 1, a, 0, 60, nil)
	if a.guard.rounds != 0 || a.guard.off {
		t.Errorf("judged by speed where speed is not what is asked for: %+v", a.guard)
	}
}

// What is foreseen for actions is what applying them brings, and foreseeing changes nothing.
func TestForesee(t *testing.T) {
	c := agenttest.HeldOut16(t)
	a := NewModel(c)
	ctl := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "bursts"), 5), Policy: a}
	for range 20 {
		if _, err := ctl.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	actions := make([]int, len(c.Nodes))
	for i := range actions {
		actions[i] = (3 * i) % len(env.Actions)
	}
	belief := func() (s string) {
		for i := range c.Nodes {
			s += fmt.Sprintf("%+v\n", a.tracker.Belief(i))
		}
		return s
	}
	before := belief()
	foreseen := a.tracker.Foresee(actions, nil)
	if belief() != before {
		t.Fatal("foreseeing changed a belief")
	}
	a.tracker.Apply(actions, a.perf)
	a.tracker.Occupy(a.perf, a.ready)
	if !slices.Equal(foreseen, a.ready) {
		t.Errorf("foreseen %+v, applied %+v", foreseen, a.ready)
	}
}
