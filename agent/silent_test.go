package agent

import (
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// The first round of a free rule leaves one node behind, with the longest grace; if only all nodes
// may be waited for, it waits for all.
func TestFirstRule(t *testing.T) {
	for _, x := range []struct {
		quorums, graces []float64
		nodes           int
		want            cluster.Quorum
		grace           float64
	}{
		{cluster.Quorums, cluster.Graces, 8, cluster.Quorum{Share: 0.8}, 0.4},
		{cluster.Quorums, cluster.Graces, 16, cluster.Quorum{Share: 0.9}, 0.4},
		{cluster.Quorums, []float64{0, 0.1}, 100, cluster.Quorum{Share: 0.95}, 0.1},
		{[]float64{1}, nil, 8, cluster.Quorum{}, 0},
		{[]float64{0.9, 1}, []float64{0}, 3, cluster.Quorum{}, 0}, // 90% of 3 are all
	} {
		slopes := make([]float64, x.nodes)
		for i := range slopes {
			slopes[i] = 0.1
		}
		c := agenttest.Lines(t, 10*x.nodes, slopes...)
		c.Choices = cluster.Choices{Quorum: x.quorums, Grace: x.graces}
		plan := cluster.Plan{Sizes: make([]int, x.nodes), Collect: c.Collect}
		if err := NewModel(c).Decide(nil, nil, &plan); err != nil {
			t.Fatal(err)
		}
		if plan.Collect.Quorum != x.want || plan.Collect.GraceShare != x.grace {
			t.Errorf("%v of %d: %+v", x.quorums, x.nodes, plan.Collect)
		}
	}
}

// In rounds far shorter than the heartbeat, no node waits for hanging nodes: not in the first
// round, and not for several at once.
func TestNobodyWaitsForHangs(t *testing.T) {
	c := agenttest.Lines(t, 80, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	k, err := cluster.Preset("steady")
	if err != nil {
		t.Fatal(err)
	}
	k.Failures = cluster.Failures{Rate: 0.002, Rounds: 30, Silent: 1}
	hung := 0
	for seed := range uint64(12) {
		ctl := &Control{Cluster: c, Runner: sim.New(c, k, seed), Policy: NewModel(c)}
		for range 250 {
			r, err := ctl.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			late := 0
			for i := range r.Report.Nodes {
				if r.Report.Nodes[i].Status == cluster.Late && r.Report.Nodes[i].Busy > 5 {
					late++
				}
			}
			hung = max(hung, late)
			if r.Report.Wait.Seconds() > 10 {
				t.Errorf("seed %d: round %d waited %v by %+v", seed, r.Report.Round, r.Report.Wait, r.Plan.Collect)
			}
		}
	}
	if hung < 2 {
		t.Errorf("at most %d hung at once: the test does not show what it should", hung)
	}
}

// If the timeout is a share of the deadline, a mute node and one fifty times slower cost almost
// nothing, however short rounds are; a timeout of a hundred rounds is paid once.
func TestMuteNodeUnderADeadline(t *testing.T) {
	const rounds = 400
	seconds := func(nodes int, slow float64, collect cluster.Collect) float64 {
		c := agenttest.Lines(t, 256, slices.Repeat([]float64{0.1}, nodes)...)
		for i := range c.Nodes {
			c.Nodes[i].Limit = 4
		}
		c.Nodes[nodes-1].Hidden.Slowdown = slow
		collect.AutoDeadline = true
		c.Collect = collect
		ctl := &Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
		took, samples := 0.0, 0.0
		for range rounds {
			r, err := ctl.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if share := r.Plan.Collect.TimeoutShare; share > 0 && collect.Timeout == 0 && math.Abs(r.Plan.Collect.Timeout.Seconds()/r.Plan.Collect.Deadline.Seconds()-share) > 1e-6 {
				t.Fatalf("a timeout of %v after a deadline of %v", r.Plan.Collect.Timeout, r.Plan.Collect.Deadline)
			}
			took += r.Report.Wait.Seconds()
			samples += float64(r.Report.Accepted)
		}
		return took / samples
	}
	without := seconds(15, 1, cluster.Collect{})
	for name, x := range map[string]struct {
		slow    float64
		collect cluster.Collect

		least, most float64 // over the job without the node
	}{
		"mute":                       {1e9, cluster.Collect{TimeoutShare: 3}, 0.9, 1.03},
		"fifty times slower":         {50, cluster.Collect{TimeoutShare: 3}, 0.9, 1.03},
		"mute, a timeout in seconds": {1e9, cluster.Collect{Timeout: time.Duration(100 * without * 256 * 1e9)}, 1.2, 1.27},
		"mute, both: seconds stand":  {1e9, cluster.Collect{Timeout: time.Duration(100 * without * 256 * 1e9), TimeoutShare: 3}, 1.2, 1.27},
	} {
		if got := seconds(16, x.slow, x.collect) / without; got > x.most || got < x.least {
			t.Errorf("%s: %.3f times as long as without the node", name, got)
		}
	}
}
