package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// Over a run a node works as long as its jobs take, whichever rounds they fall into, and
// waits for the rest of the rounds that it takes part in.
func TestEnergyIsThatOfTheJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k := drawCluster(t), drawConditions(t)
		c.Collect = drawCollect(t)
		for i := range c.Nodes {
			idle := rapid.Float64Range(0, 100).Draw(t, "idle")
			c.Nodes[i].Power = cluster.Power{Idle: idle, Busy: idle + rapid.Float64Range(1, 300).Draw(t, "more")}
		}
		c.Nodes[0].Power = cluster.Power{} // unknown
		s := New(c, k, rapid.Uint64().Draw(t, "seed"))
		worked, waited, joules := make([]time.Duration, len(c.Nodes)), make([]time.Duration, len(c.Nodes)), make([]float64, len(c.Nodes))
		s.trace = func(node int, _ string) {
			share, _ := s.recorder.Share(node)
			worked[node] += s.now - share.Start
		}
		for range 25 {
			r := mustRound(t, s, drawSizes(t, c))
			for i, n := range r.Nodes {
				wait, p := r.Wait.Seconds(), c.Nodes[i].Power
				if n.Status == cluster.Absent && n.Joules != 0 || n.Joules < p.Joules(0, wait)*(1-1e-9) && n.Status != cluster.Absent || n.Joules > p.Joules(wait, wait)*(1+1e-9) {
					t.Fatalf("node %d of %+v: %+v in a round of %v", i, p, n, r.Wait)
				}
				if n.Status != cluster.Absent {
					waited[i] += r.Wait
				}
				joules[i] += n.Joules
			}
		}
		for i := range c.Nodes {
			if share, busy := s.recorder.Share(i); busy {
				worked[i] += s.now - share.Start
			}
			want := c.Nodes[i].Power.Joules(worked[i].Seconds(), waited[i].Seconds())
			if math.Abs(joules[i]-want) > 1e-6*(1+want) {
				t.Fatalf("node %d: %v J in the reports, %v J for %v of work in %v", i, joules[i], want, worked[i], waited[i])
			}
		}
		if joules[0] != 0 {
			t.Fatalf("%v J of a node whose power is unknown", joules[0])
		}
	})
}
