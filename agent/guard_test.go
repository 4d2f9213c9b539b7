package agent

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// timed counts a policy's samples on a simulated cluster, and the seconds of its rounds, from a round on.
func timed(t *testing.T, c *cluster.Cluster, conditions string, seed uint64, p Policy, from, rounds int, each func()) (counted, seconds float64) {
	t.Helper()
	ctl := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, conditions), seed), Policy: p}
	for k := range rounds {
		r, err := ctl.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if k >= from {
			counted += r.Report.Counted
			seconds += r.Report.Wait.Seconds()
		}
		if each != nil {
			each()
		}
	}
	return counted, seconds
}

// seconds is how long these rounds are.
func seconds(t *testing.T, c *cluster.Cluster, conditions string, seed uint64, p Policy, from, rounds int, each func()) float64 {
	t.Helper()
	_, s := timed(t, c, conditions, seed, p, from, rounds, each)
	return s
}

// alone leaves the decisions to the network, without a safeguard.
func alone(a *Agent) {
	a.guard, a.steady.rounds = nil, math.Inf(-1)
}

// Networks of random weights that cost 2 to 50% of the time lose the decision, and cost little from
// round 60 on.
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
		alone(free)
		without := seconds(t, c, x.conditions, 1, free, 60, 240, nil)
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

// The same where rounds end by a rule of the agent's choice: what counts is progress.
func TestGuardFiresUnderAFreeRule(t *testing.T) {
	for _, x := range []struct {
		net        uint64
		conditions string
	}{{12, "steady"}, {12, "drift"}, {0, "bursts"}, {12, "bursts"}} {
		c := *agenttest.HeldOut16(t)
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
		wrong := untrained(t, 8)
		var err error
		if wrong.Network, err = ddqn.NewNetwork(wrong.Network.Spec(), rand.New(rand.NewPCG(x.net, 3))); err != nil {
			t.Fatal(err)
		}
		speed := func(a *Agent, guarded bool) float64 {
			if !guarded {
				alone(a)
			}
			counted, seconds := timed(t, &c, x.conditions, 1, a, 60, 240, nil)
			return counted / seconds
		}
		model := speed(NewModel(&c), true)
		with, without := speed(wrong.NewAgent(&c, agenttest.Speed), true)/model, speed(wrong.NewAgent(&c, agenttest.Speed), false)/model
		t.Logf("network %d, %s: %.3f of the model's progress, %.3f without the guard", x.net, x.conditions, with, without)
		if without > 0.95 || with < 1-(1-without)/2 {
			t.Errorf("network %d, %s: %.3f of the model's progress, %.3f without the guard", x.net, x.conditions, with, without)
		}
	}
}

// The embedded policy gets the decision on clusters that it was not trained on, and is almost as fast as without the guard.
func TestGuardLetsAGoodNetworkDecide(t *testing.T) {
	followed, rounds := 0, 0
	with, without := 0.0, 0.0
	for _, conditions := range []string{"steady", "drift", "interference", "bursts", "diurnal"} {
		for seed := range uint64(4) {
			c := agenttest.HeldOut16(t)
			a, free := embeddedPolicy(t).NewAgent(c, agenttest.Speed), embeddedPolicy(t).NewAgent(c, agenttest.Speed)
			alone(free)
			with += seconds(t, c, conditions, seed, a, 0, 200, func() {
				if rounds++; !a.guard.off {
					followed++
				}
			})
			without += seconds(t, c, conditions, seed, free, 0, 200, nil)
			if a.guard.rounds < 5 {
				t.Errorf("%s, seed %d: judged in %v rounds", conditions, seed, a.guard.rounds)
			}
		}
	}
	t.Logf("followed in %d of %d rounds, which took %.4f of the time without the guard", followed, rounds, with/without)
	if followed < rounds/2 || with > 1.001*without {
		t.Errorf("followed in %d of %d rounds, which took %.4f of the time without the guard", followed, rounds, with/without)
	}
}

// Two nodes took 2 and 3 s for 10 samples each; a third of a node's time is overhead. With 12 and 8 samples they would have taken
// 34/15 and 2.6 s: the one that decided lost 0.4 s, in each of which a third of a batch is done.
func TestGuardByHand(t *testing.T) {
	tracker := env.NewTracker(agenttest.Lines(t, 20, 0.1, 0.1))
	report := func(seconds ...float64) *cluster.Report {
		wait := slices.Max(seconds)
		r := &cluster.Report{Wait: time.Duration(wait * 1e9), Accepted: 20, Counted: 20}
		for _, s := range seconds {
			r.Nodes = append(r.Nodes, cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Seconds: s, Idle: wait - s})
		}
		return r
	}
	const lost = 0.4 / 3
	g := guard{tracker: tracker, decided: []int{10, 10}, instead: []int{12, 8}, pending: true} // the network's say
	judge := func(r *cluster.Report) {
		tracker.Observe(r)
		g.judge(r, tracker)
	}
	judge(report(2, 3))
	if math.Abs(g.regret.Mean-lost) > 1e-9 || g.rounds != 1 || g.pending || g.off {
		t.Fatalf("%+v, want a mean of %v", g, lost)
	}
	if judge(report(2, 3)); g.rounds != 1 {
		t.Error("judged by nothing")
	}
	g.pending = true
	unknown := report(2, 3)
	unknown.Nodes[1].Status = cluster.Lost
	if judge(unknown); g.rounds != 1 || g.pending {
		t.Errorf("a round with a node that was lost is judged: %+v", g)
	}
	for k := range 4 { // always the same loss: the fifth round is the first that may decide
		if g.off {
			t.Fatalf("off after %v rounds", g.rounds)
		}
		g.pending = true
		judge(report(2, 3))
		if want := k == 3; g.off != want {
			t.Fatalf("off %v after %v rounds", g.off, g.rounds)
		}
	}
	// Now the sizes kept are the network's, and it still loses: the model's rounds of 2.6 s would have been 3 s long.
	before := g.regret.Mean
	g.decided, g.instead, g.pending = []int{12, 8}, []int{10, 10}, true
	r := report(34.0/15, 2.6)
	r.Nodes[0].Size, r.Nodes[0].Samples, r.Nodes[1].Size, r.Nodes[1].Samples = 12, 12, 8, 8
	tracker.Observe(r)
	gain, known := tracker.Regret(r, env.Play{Shares: g.decided, Rule: tracker.Rule()}, env.Play{Shares: g.instead, Rule: tracker.Rule()})
	if g.judge(r, tracker); !known || gain >= 0 || !g.off || math.Abs(g.regret.Mean-(before+(-gain-before)/g.rounds)) > 1e-9 {
		t.Errorf("%+v, regret %v", g, gain)
	}
	for k := range 200 { // it would be faster from now on
		g.pending, g.decided, g.instead = true, []int{10, 10}, []int{12, 8}
		if judge(report(2, 3)); !g.off {
			if g.regret.Mean >= 0 || k < 5 {
				t.Errorf("back after %d rounds", k+1)
			}
			return
		}
	}
	t.Error("the network never gets the decision back")
}

// Differences within a standard error do not count.
func TestGuardAllowsNoise(t *testing.T) {
	for _, x := range []struct {
		mean      float64 // sd 0.01, of which the standard error is a tenth
		off, want bool
	}{{0.0011, false, true}, {0.0009, false, false}, {-0.0009, true, true}, {-0.0011, true, false}} {
		g := guard{off: x.off, rounds: 1e6, decided: []int{10}, instead: []int{10}, pending: true, tracker: env.NewTracker(agenttest.Lines(t, 10, 0.1))}
		r := &cluster.Report{Wait: time.Second, Nodes: []cluster.NodeReport{{Status: cluster.In, Size: 10, Samples: 10, Seconds: 1}}}
		g.regret.Mean = x.mean / 0.98 // a round of the same sizes takes a fiftieth off
		g.regret.Spread = (0.0001*(2-0.02)/0.02/100 - 0.02*0.98*g.regret.Mean*g.regret.Mean) / 0.98
		g.tracker.Observe(r)
		g.judge(r, g.tracker)
		if g.off != x.want || math.Abs(g.regret.Mean-x.mean) > 1e-9 {
			t.Errorf("mean %v, %+v: want off %v", x.mean, g, x.want)
		}
	}
}

// The model's belief is the same as without the network, whatever the network does; the model decides while the network is overruled.
func TestGuardBelievesAsTheModelAlone(t *testing.T) {
	for conditions, collect := range map[string]cluster.Collect{"drift": {}, "bursts": {Quorum: cluster.Quorum{Share: 0.75}, Grace: time.Second}} {
		c := *agenttest.HeldOut16(t)
		c.Collect = collect
		a, model := untrained(t, 8).NewAgent(&c, agenttest.Speed), NewModel(&c)
		ctl := Control{Cluster: &c, Runner: sim.New(&c, agenttest.Conditions(t, conditions), 5), Policy: a}
		plan, differ := cluster.Plan{Sizes: make([]int, len(c.Nodes))}, 0
		var report *cluster.Report
		for k := range 40 {
			if a.guard.off, a.guard.rounds = false, 0; k >= 20 {
				a.guard.off, a.guard.rounds, a.guard.regret.Mean = true, 1e6, 1e6
			}
			r, err := ctl.Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			plan.Collect = collect
			if err := model.Decide(report, nil, &plan); err != nil {
				t.Fatal(err)
			}
			own := *r.Report
			own.Nodes = slices.Clone(own.Nodes)
			report = &own
			for i := range c.Nodes {
				got, want, e := a.guard.tracker.Belief(i), model.tracker.Belief(i), a.Explain(i)
				got.Ahead, e.After.Ahead = want.Ahead, want.Ahead // the agent's tracker foresees for both
				if got != want {
					t.Fatalf("%s, round %d, node %d: %+v, the model alone has %+v", conditions, k, i, got, want)
				}
				if k > 20 && (e.After != want || e.Chosen.Action != model.actions[i] || e.Model.Action != e.Chosen.Action || a.perf[i] != model.perf[i]) {
					t.Fatalf("%s, round %d, node %d: explained by %+v", conditions, k, i, e)
				}
			}
			if a.guard.tracker.Rule() != a.tracker.Rule() || k > 1 && collect.Grace > 0 && a.tracker.Rule().Grace == 0 {
				t.Fatalf("%s, round %d: rules %+v and %+v", conditions, k, a.guard.tracker.Rule(), a.tracker.Rule())
			}
			if k > 0 {
				other, want := a.guard.tracker, make([]cluster.Performance, len(c.Nodes))
				if a.guard.off {
					other = a.tracker
				}
				if other.Occupy(a.guard.perf, want); !slices.Equal(want, a.guard.ready) {
					t.Fatalf("%s, round %d: kept what is allocated by %+v, want %+v", conditions, k, a.guard.ready, want)
				}
			}
			if !slices.Equal(r.Plan.Sizes, plan.Sizes) {
				differ++
				if k > 21 { // what is kept in the dead band may be other sizes at first
					t.Fatalf("%s, round %d: sizes %v, the model hands out %v", conditions, k, r.Plan.Sizes, plan.Sizes)
				}
			}
		}
		if differ == 0 {
			t.Error("the network changes nothing")
		}
	}
}

// Trials of a node that is too slow count for neither controller: here a network that chooses as the model has no regret in 600
// rounds.
func TestGuardTakesTrialsForNobodysLoss(t *testing.T) {
	c := agenttest.Lines(t, 60, 0.01, 0.01, 0.01, 0.01)
	slow, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1.5}, {MicroBatch: 64, Seconds: 3.4}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[3].Hidden.Profile = slow
	same := embeddedPolicy(t)
	same.Record.Advantage = 1e9
	a := same.NewAgent(c, agenttest.Speed)
	ctl := Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{Noise: cluster.Spread{Median: 0.03}}, 1), Policy: a}
	tried, judged := 0, 0.0
	for round := range 600 {
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if ctl.parts.nodes[3].onTrial(ctl.parts.round) && r.Plan.Sizes[3] > 0 {
			tried++
		}
		if math.Abs(a.guard.regret.Mean) > 1e-9 || a.guard.off != (a.guard.rounds < guardRounds) {
			t.Fatalf("round %d: a regret of %v, off %v", round, a.guard.regret.Mean, a.guard.off)
		}
		judged = a.guard.rounds
	}
	if tried < 3 || judged < 500 {
		t.Errorf("tried %d times, judged in %v rounds", tried, judged)
	}
}

// While the guard overrules it, the network changes nothing: shares and rules are those of the model alone.
func TestGuardedAgentIsTheModel(t *testing.T) {
	c := *agenttest.HeldOut16(t)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	for conditions, seed := range map[string]uint64{"bursts": 1, "failures": 2} {
		a, model := untrained(t, 8).NewAgent(&c, agenttest.Speed), NewModel(&c)
		one := Control{Cluster: &c, Runner: sim.New(&c, agenttest.Conditions(t, conditions), seed), Policy: a}
		two := Control{Cluster: &c, Runner: sim.New(&c, agenttest.Conditions(t, conditions), seed), Policy: model}
		differ := 0
		for round := range 100 {
			a.guard.rounds = 0
			r, err := one.Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			m, err := two.Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Plan.Sizes, m.Plan.Sizes) || r.Plan.Collect != m.Plan.Collect || round > 0 && a.Explain(0).Rule.Chosen != model.Explain(0).Rule.Chosen {
				t.Fatalf("%s, round %d: %+v, the model by itself %+v", conditions, round, r.Plan, m.Plan)
			}
			if a.tracker.Rule() != a.guard.tracker.Rule() {
				differ++
			}
			if means := a.tracker.Means()[0]; round == 1 && (means != a.guard.tracker.Means()[0] || means == [env.Objectives]float64{}) {
				t.Errorf("%s: the first round, in which both are the same, says different things of the rules", conditions)
			}
		}
		if differ == 0 {
			t.Errorf("%s: the network would have chosen the same rule in every round", conditions)
		}
	}
}

// Rounds that end at a deadline are not judged, and the network decides, without a margin.
func TestGuardLeavesDeadlinesAlone(t *testing.T) {
	for name, collect := range map[string]cluster.Collect{"automatic": {AutoDeadline: true}, "share": {DeadlineShare: 1}, "seconds": {Deadline: time.Second}} {
		c := *agenttest.HeldOut16(t)
		c.Collect = collect
		a := untrained(t, 8).NewAgent(&c, agenttest.Speed)
		seconds(t, &c, "bursts", 1, a, 0, 30, nil)
		if a.guard.rounds != 0 || a.guarded() {
			t.Errorf("%s: judged in %v rounds", name, a.guard.rounds)
		}
		for i := range c.Nodes {
			if margin := a.Explain(i).After.Margin; margin != 0 {
				t.Errorf("%s: node %d has a margin of %v", name, i, margin)
			}
		}
	}
}

// A large cluster is judged only in some rounds; preferences other than speed are not judged.
func TestGuardIsDue(t *testing.T) {
	for nodes, want := range map[int]int{10: 1, 1024: 1, 1025: 2, 10_000: 10} {
		var g guard
		for k := 1; !g.pace.due(nodes, batchNodes); k++ {
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
	a.guard.off = true
	if a.guard.rounds != 0 || a.guarded() {
		t.Errorf("judged by speed where speed is not what is asked for: %+v", a.guard)
	}
}
