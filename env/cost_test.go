package env

import (
	"math/rand/v2"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

// A round of long samples is not taken for slowness, with a profile and without: the belief
// divides by what the samples cost, and sees a shift where there is one.
func TestLengthIsNotSlowness(t *testing.T) {
	c := envtest.Mixed(t, 4)
	for i := 2; i < 4; i++ {
		c.Nodes[i].Hidden.Profile, c.Nodes[i].Profile = c.Nodes[i].Profile, nil
	}
	true4 := c.Revealed().Nominal()
	tracker, rng := NewTracker(c), rand.New(rand.NewPCG(3, 4))
	actions, perf := make([]int, 4), make([]cluster.Performance, 4)
	for round := range 120 {
		r := &cluster.Report{Round: round, Wait: 1e9, Nodes: make([]cluster.NodeReport, 4)}
		for i := range r.Nodes {
			cost := 10 * (0.4 + 1.2*rng.Float64())
			slow := 1 + 0.02*rng.NormFloat64()
			if round >= 100 && i%2 == 1 {
				slow *= 2
			}
			seconds := slow * true4[i].PerSample * cost
			if p := c.Nodes[i].Profile; p != nil {
				seconds = slow * p.Seconds(cost)
			}
			r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Cost: cost, Seconds: seconds + c.Nodes[i].Network}
		}
		tracker.Observe(r)
		for i := range tracker.nodes {
			n := &tracker.nodes[i]
			if round > 20 && round < 100 && n.calm == 0 {
				t.Fatalf("round %d: node %d seems to have jumped: %+v", round, i, n)
			}
			if round == 100 && (n.calm == 0) != (i%2 == 1) {
				t.Fatalf("node %d: %+v", i, n)
			}
		}
		tracker.Model(actions)
		tracker.Apply(actions, perf)
		for i := range tracker.nodes {
			if d := tracker.nodes[i].deviation(); round == 99 && d > 0.05 {
				t.Errorf("node %d: a deviation of %v", i, d)
			}
		}
	}
}
