package env

import (
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/env/internal/envtest"
)

// A learning rate follows the scale only if it is sure; the rest of the agent uses the estimate.
func TestSureScale(t *testing.T) {
	tracker := NewTracker(envtest.Mixed(t, 2))
	for k := range 10 {
		r := &cluster.Report{Wait: time.Second, Accepted: 40, Nodes: []cluster.NodeReport{
			{Status: cluster.In, Size: 10, Norm: math.Sqrt2}, {Status: cluster.In, Size: 30, Norm: math.Sqrt(10.0 / 9)},
		}}
		if tracker.Observe(r); !near(tracker.NoiseScale(), 20) || (tracker.SureScale() != 0) != (k == 9) {
			t.Fatalf("round %d: scale %v, sure %v", k, tracker.NoiseScale(), tracker.SureScale())
		}
	}
	tracker.Observe(&cluster.Report{Wait: time.Second, Nodes: make([]cluster.NodeReport, 2)})
	if got := tracker.NoiseScale(); !near(got, 20) {
		t.Errorf("a round without norms: scale %v", got)
	}
}
