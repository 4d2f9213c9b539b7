package env

import (
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/env/internal/envtest"
)

// If only every third node of a large cluster is looked at, the rules have the values that all nodes give.
func TestMeansOfSomeOfMany(t *testing.T) {
	const nodes, scale = 2052, 50_000
	c := envtest.Mixed(t, nodes)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	tracker := NewTracker(c)
	tracker.scale = scale
	report := &cluster.Report{Wait: 4 * time.Second, Counted: float64(c.GlobalBatch)}
	var all []cluster.Delivery
	for i := range nodes {
		s := []float64{1, 1.5, 2, 4}[i/3%4]
		size := c.GlobalBatch / nodes
		report.Nodes = append(report.Nodes, cluster.NodeReport{Status: cluster.In, Size: size, Samples: size, Seconds: s, Idle: 4 - s})
		all = append(all, cluster.Delivery{At: s, Took: s, Size: size, Power: c.Nodes[i].Power})
	}
	tracker.Observe(report)
	if tracker.scale != scale || len(tracker.round.work) != nodes/3 {
		t.Fatalf("noise scale %v, %d nodes looked at", tracker.scale, len(tracker.round.work))
	}
	var o cluster.Outcomes
	o.Set(all)
	want := make([][Objectives]float64, len(cluster.Rules))
	ruleValues(want, &o, nodes, float64(c.GlobalBatch), scale, 0.25) // a whole batch in 4 s
	center(want)
	for a, means := range tracker.Means() {
		for k := range 3 { // the nodes' powers differ
			if !near(means[k]+1, want[a][k]+1) {
				t.Errorf("%v, %s: %v, want %v", cluster.Rules[a], ObjectiveNames[k], means[k], want[a][k])
			}
		}
	}
}
