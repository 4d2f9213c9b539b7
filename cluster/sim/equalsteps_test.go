package sim

import (
	"math"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Nodes compute equal micro-steps in the time that the allocation predicts, however noise is drawn, and run out of memory by the
// size of a micro-step.
func TestEqualSteps(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}, {MicroBatch: 4, Seconds: 2}, {MicroBatch: 8, Seconds: 5}}, "")
	if err != nil {
		t.Fatal(err)
	}
	node := cluster.Node{Device: "d", Profile: p, Limit: 8, Network: 0.5}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 54, Nodes: []cluster.Node{node, node, node}}
	c.Nodes[2].Hidden.Limit = 5
	c.SetEqualSteps(3)
	for _, within := range []float64{0, 0.5} {
		for _, sizes := range [][]int{{24, 16, 14}, {23, 15, 16}} {
			report, err := New(c, cluster.Conditions{NoiseWithin: within}, 1).Round(t.Context(), cluster.Plan{Sizes: sizes})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range report.Nodes {
				if i == 2 && sizes[i] > 15 {
					if !r.OOM {
						t.Errorf("%d samples in micro-steps of 6, memory holds 5: %+v", sizes[i], r)
					}
					continue
				}
				if want := c.Nodes[i].Finish(c.Nominal()[i], sizes[i]); r.Steps != 3 || r.Size != sizes[i] || math.Abs(r.Seconds-want) > 1e-9*want {
					t.Errorf("%d samples: %+v, want %v s", sizes[i], r, want)
				}
			}
		}
	}
	if _, err := New(c, cluster.Conditions{}, 1).Round(t.Context(), cluster.Plan{Sizes: []int{2, 28, 24}}); err == nil {
		t.Error("two samples in three micro-steps")
	}
}
