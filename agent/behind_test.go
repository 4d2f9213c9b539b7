package agent

import (
	"context"
	"math"
	"slices"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// lagging plays rounds whose plans are so many decisions old, as a job does that draws its
// batches ahead, and returns the plans in the order of the decisions.
func lagging(t *testing.T, c *cluster.Cluster, s cluster.Runner, p Policy, lag, rounds int, each func(cluster.Plan, *cluster.Report)) *Control {
	t.Helper()
	ctl := &Control{Cluster: c, Policy: p, Behind: lag + 1}
	var plans []cluster.Plan
	var report *cluster.Report
	for k := range rounds {
		plan, err := ctl.Next(report, s.Present())
		if err != nil {
			t.Fatal(err)
		}
		if plan.Number != k+1 {
			t.Fatalf("plan %d after %d others", plan.Number, k)
		}
		plan.Sizes = slices.Clone(plan.Sizes)
		plans = append(plans, plan)
		runs := plans[max(k-lag, 0)]
		runs.Perf = nil // the newest's
		if report, err = s.Round(context.Background(), runs); err != nil {
			t.Fatal(err)
		}
		own := *report
		own.Plan = runs.Number
		if report = &own; each != nil {
			each(plan, report)
		}
	}
	return ctl
}

// Without a lag Next decides what Round does, whether reports name their plan or not.
func TestNextIsRound(t *testing.T) {
	c := agenttest.HeldOut16(t)
	conditions := agenttest.Conditions(t, "failures")
	ctl := &Control{Cluster: c, Runner: sim.New(c, conditions, 3), Policy: embeddedPolicy(t).NewAgent(c, agenttest.Speed)}
	other := agenttest.HeldOut16(t)
	lagging(t, other, sim.New(other, conditions, 3), embeddedPolicy(t).NewAgent(other, agenttest.Speed), 0, 120, func(plan cluster.Plan, _ *cluster.Report) {
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Plan.Sizes, plan.Sizes) || r.Plan.Finish != plan.Finish {
			t.Fatalf("plan %d: %v, Round has %v", plan.Number, plan.Sizes, r.Plan.Sizes)
		}
	})
}

// Reports of plans that are eight decisions old still settle on the sizes that finish
// together, and the prediction that a wait is compared with is that of its own plan.
func TestLateReports(t *testing.T) {
	for _, lag := range []int{1, 4, 8} {
		c := agenttest.Lines(t, 120, 0.1, 0.15, 0.2, 0.4)
		s := sim.New(c, cluster.Conditions{}, 1)
		a := embeddedPolicy(t).NewAgent(c, agenttest.Speed)
		finish := map[int]float64{}
		excess := 0.0
		lagging(t, c, s, a, lag, 60, func(plan cluster.Plan, r *cluster.Report) {
			finish[plan.Number] = plan.Finish
			if plan.Number > 30 {
				excess = max(excess, math.Abs(r.Wait.Seconds()/finish[r.Plan]-1))
			}
		})
		best := make([]int, 4)
		cluster.Allocate(c, nil, c.Nominal(), best) //nolint:errcheck // the agent's allocation is the same
		if got := a.seen.sizes; !slices.Equal(got, best) {
			t.Errorf("lag %d: sizes %v, the best are %v", lag, got, best)
		}
		if excess > 0.05 {
			t.Errorf("lag %d: a round lasted %.0f%% longer than its own plan predicted", lag, 100*excess)
		}
	}
}

// A trial takes one plan, not one for every round until its report is in, and a node that
// fell silent is not punished again for the shares that it was handed before.
func TestLateParticipation(t *testing.T) {
	const lag = 6
	for name, x := range map[string]struct {
		slow          float64
		rounds, tried int // in how many plans node 2 may be tried
	}{
		"too slow": {5, 200, 4},   // a trial costs half a round: every 50
		"silent":   {-1, 1100, 2}, // it costs many: 19 rounds, then 14, and it is tried after 30 times as many
	} {
		c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
		tried, left := 0, false
		ctl := lagging(t, c, &scripted{slow: []float64{1, 1, x.slow}}, NewModel(c), lag, x.rounds, func(plan cluster.Plan, _ *cluster.Report) {
			left = left || plan.Sizes[2] == 0
			if left && plan.Sizes[2] > 0 {
				tried++
			}
		})
		if tried > x.tried || tried == 0 {
			t.Errorf("%s: tried in %d plans (%v), want 1 to %d", name, tried, ctl.LeftOut(2), x.tried)
		}
	}
}

// A report of a plan that is not kept is refused, and changes nothing.
func TestUnknownPlan(t *testing.T) {
	for number, known := range map[int]bool{-1: false, 0: true, 1: false, 2: false, 3: true, 4: true, 5: true, 6: false} {
		c := agenttest.Lines(t, 30, 0.1, 0.1)
		ctl := Control{Cluster: c, Policy: NewModel(c), Behind: 2}
		var report *cluster.Report
		for range 5 {
			plan, err := ctl.Next(report, []bool{true, true})
			if err != nil {
				t.Fatal(err)
			}
			report = agenttest.Measured(plan.Sizes, 2, 2)
		}
		report.Plan = number
		if _, err := ctl.Next(report, []bool{true, true}); (err == nil) != known {
			t.Errorf("plan %d of 5, two behind: %v", number, err)
		}
	}
}

// steps is a policy that hands out one list of shares after the other, and keeps what it is shown.
type steps struct {
	shares [][]int
	seen   []float64 // the predictions that it is told of
}

func (s *steps) Decide(report *cluster.Report, _ []bool, plan *cluster.Plan) error {
	if report != nil {
		s.seen = append(s.seen, report.Predicted)
	}
	copy(plan.Sizes, s.shares[0])
	plan.Finish = float64(len(s.shares))
	s.shares = s.shares[1:]
	return nil
}

// A late report moves the deadline, the limits of memory and the policy by the shares and the
// prediction of its own plan, by hand.
func TestLateReportByItsPlan(t *testing.T) {
	for _, timed := range []bool{false, true} {
		c := agenttest.Lines(t, 40, 0.1, 0.1)
		c.Collect.AutoDeadline = timed
		c.Nodes[0].Limit = 64
		p := &steps{shares: [][]int{{8, 32}, {20, 30}, {20, 30}, {20, 30}}}
		ctl := Control{Cluster: c, Policy: p, Behind: 3}
		for range 3 {
			if _, err := ctl.Next(nil, []bool{true, true}); err != nil {
				t.Fatal(err)
			}
		}
		r := agenttest.Measured([]int{4, 48}, 1, 2)
		r.Plan, r.Nodes[0].OOM = 1, true
		if _, err := ctl.Next(r, []bool{true, true}); err != nil {
			t.Fatal(err)
		}
		limit, factor := 4, 0.0 // half of 8
		if timed {
			limit, factor = 32, math.Exp(-0.1*(52.0/40-1)) // half of 64
		}
		if !slices.Equal(p.seen, []float64{4}) || c.Nodes[0].Limit != limit || math.Abs(ctl.deadline.factor-factor) > 1e-12 {
			t.Errorf("timed %v: predictions %v, want [4]; limit %d, want %d; factor %v, want %v", timed, p.seen, c.Nodes[0].Limit, limit, ctl.deadline.factor, factor)
		}
	}
}

// Losses of shares that were handed out before a node fell silent do not postpone its next trial.
func TestSilencePunishedOnce(t *testing.T) {
	p := newParticipation(1)
	p.round = 10
	lost := &cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.Lost}}}
	p.observe(lost, 4, 0)
	first := p.nodes[0].next
	for round := 5; round <= 10; round++ {
		p.observe(lost, round, 0)
	}
	if n := p.nodes[0]; n.why != Silent || n.next != first || first <= 10 || n.lost != 1 {
		t.Errorf("%v, lost %d times, tried in round %d, want %d", n.why, n.lost, n.next, first)
	}
	p.round = first
	if p.observe(lost, first, 0); p.nodes[0].next <= first || p.nodes[0].lost != 2 {
		t.Errorf("after another loss tried in round %d, not after %d", p.nodes[0].next, first)
	}
}

// The agent compares a wait with the prediction of its own plan, so that a changed plan is not a slow round.
func TestAgentUsesThePrediction(t *testing.T) {
	excess := func(predicted float64) float32 {
		c := agenttest.Lines(t, 40, 0.1, 0.1)
		a := NewModel(c)
		plan := cluster.Plan{Sizes: make([]int, 2)}
		if err := a.Decide(nil, nil, &plan); err != nil {
			t.Fatal(err)
		}
		r := agenttest.Measured(plan.Sizes, 5, 5)
		r.Predicted = predicted
		if err := a.Decide(r, nil, &plan); err != nil {
			t.Fatal(err)
		}
		return a.tracker.Rows(nil, agenttest.Speed)[slices.Index(env.FeatureNames, "fleet: wait against the prediction")]
	}
	if own, newest := excess(5), excess(0); own != 0 || newest != 2 {
		t.Errorf("the wait is %v and %v above the prediction, want 0 and 2", own, newest)
	}
}
