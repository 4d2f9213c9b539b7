package agent

import (
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// A node whose memory holds less than the cluster says runs out of it once, goes on with
// smaller micro-steps and keeps its part of the work.
func TestRunsOutOfMemoryOnce(t *testing.T) {
	for _, timed := range []bool{false, true} {
		c := agenttest.Lines(t, 120, 0.1, 0.1, 0.1, 0.1)
		for i := range c.Nodes {
			c.Nodes[i].Limit = 16
		}
		c.Collect.AutoDeadline = timed
		c.Nodes[2].Hidden.Limit = 9
		ctl := &Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
		failures := 0
		for k := range 60 {
			r, err := ctl.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Report.Nodes[2].OOM {
				failures++
			}
			if k > 10 && (r.Report.Nodes[2].Samples < 20 || ctl.LeftOut(2) != TakesPart) {
				t.Fatalf("timed %v, round %d: %+v, %v", timed, k, r.Report.Nodes[2], ctl.LeftOut(2))
			}
		}
		if failures != 1 || ctl.memory.Learnt(2) != 8 || ctl.memory.Learnt(0) != 0 {
			t.Errorf("timed %v: %d failures, learnt %d", timed, failures, ctl.memory.Learnt(2))
		}
		if ctl.SettleLimits(); c.Nodes[2].Limit != 8 || c.Nodes[1].Limit != 16 {
			t.Errorf("limits %d, %d", c.Nodes[2].Limit, c.Nodes[1].Limit)
		}
	}
}

// A node whose memory does not hold its least micro-batch is left out with a reason; if there is no other node,
// the run ends with an error.
func TestLeftOutForMemory(t *testing.T) {
	c := agenttest.Lines(t, 40, 0.1, 0.1, 0.1)
	for i := range c.Nodes {
		c.Nodes[i].Limit, c.Nodes[i].Least = 8, 4
	}
	c.Nodes[1].Hidden.Limit = 3
	ctl := &Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
	for range 40 {
		r, err := ctl.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ctl.report.Round > 20 && (r.Plan.Sizes[1] != 0 || r.Report.Accepted != 40) {
			t.Fatalf("%v, %+v", r.Plan.Sizes, r.Report)
		}
	}
	if why := ctl.LeftOut(1); why != NoMemory || why.String() != "out of memory" {
		t.Error(why)
	}
	for i := range c.Nodes {
		c.Nodes[i].Limit, c.Nodes[i].Hidden.Limit = 8, 2
	}
	ctl = &Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
	var err error
	for k := 0; k < 40 && err == nil; k++ {
		_, err = ctl.Round(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "smallest micro-batch") {
		t.Error(err)
	}
}

// In 1,000 random histories of clusters whose nodes fail, hang, join and run out of memory, with
// deadlines and without, an epoch ends, and a round accepts what its nodes handed in in time.
func TestEpochsEndWithLearntMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	failures, lost := 0, 0
	for history := range 1000 {
		n := 2 + rng.IntN(4)
		slopes := make([]float64, n)
		for i := range slopes {
			slopes[i] = 0.05 + 0.2*rng.Float64()
		}
		c := agenttest.Lines(t, 8*n+rng.IntN(30), slopes...)
		for i := range c.Nodes {
			c.Nodes[i].Limit = 2 + rng.IntN(20)
			if rng.IntN(2) == 0 {
				c.Nodes[i].Hidden.Limit = 1 + rng.IntN(20)
			}
		}
		c.Collect.AutoDeadline = rng.IntN(2) == 0
		k := cluster.Conditions{
			Noise:    cluster.Spread{Median: 0.1},
			Failures: cluster.Failures{Rate: 0.1 * rng.Float64(), Rounds: 3, Silent: 0.5}, Joins: cluster.Joins{Share: 0.5 * rng.Float64(), Rounds: 10},
		}
		ctl := &Control{Cluster: c, Runner: sim.New(c, k, uint64(history)), Policy: NewModel(c)}
		left := 50 + rng.IntN(400)
		for round := 0; left > 0; round++ {
			if round > 5000 {
				t.Fatalf("history %d does not end", history)
			}
			r, err := ctl.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			in := 0
			for i := range r.Report.Nodes {
				switch got := &r.Report.Nodes[i]; got.Status {
				case cluster.In:
					in += got.Samples
				case cluster.Lost:
					lost++
					if got.OOM {
						failures++
					}
				}
			}
			if in != r.Report.Accepted {
				t.Fatalf("history %d, round %d: %d samples came in, %d were accepted", history, round, in, r.Report.Accepted)
			}
			left -= in
		}
	}
	if failures < 500 || lost < 3*failures/2 {
		t.Errorf("%d times out of memory, %d lost: the test does not show what it should", failures, lost)
	}
}
