package env

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

// lines are nodes that take half a second and a tenth a sample.
func lines(t *testing.T, nodes, batch int) *cluster.Cluster {
	t.Helper()
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 0.6}, {MicroBatch: 100, Seconds: 10.5}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: batch}
	for range nodes {
		c.Nodes = append(c.Nodes, cluster.Node{Device: "d", Profile: p, Limit: profile.NoLimit})
	}
	return c
}

// Regrets by hand. A node that took 2 s for 10 samples takes 34/15 s for 12; one that took 3 s takes 2.6 s for 8.
func TestRegretByHand(t *testing.T) {
	in := func(seconds float64) cluster.NodeReport {
		return cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Seconds: seconds, Idle: 3 - seconds}
	}
	late := cluster.NodeReport{Status: cluster.Late, Size: 10, Seconds: 3, Busy: 3, BusySize: 10}
	skewed := in(2) // by its clock; it came in after 2.5 s
	skewed.Idle = 0.5
	older := late // at work since before the round opened
	older.Busy = 4
	two := cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Aged: 10, Behind: 1, Seconds: 4, Busy: 1, BusySize: 10}
	silent := late
	silent.Busy = 5
	for name, x := range map[string]struct {
		nodes  []cluster.NodeReport
		shares []int
		quorum float64
		want   float64 // per second of the round, and
		plus   float64 // in samples
	}{
		"all in":     {[]cluster.NodeReport{in(2), in(3)}, []int{12, 8}, 1, 0.4, 0},
		"skewed":     {[]cluster.NodeReport{in(1), skewed}, []int{10, 8}, 1, 2 * 0.2 / 1.5, -2},
		"left out":   {[]cluster.NodeReport{in(2), in(3)}, []int{10, 0}, 1, 1, -10},
		"absent":     {[]cluster.NodeReport{in(2), in(3), {Status: cluster.Absent}}, []int{12, 8, 0}, 1, 0.4, 0},
		"nothing":    {[]cluster.NodeReport{in(2), in(3), {Status: cluster.In}}, []int{12, 8, 0}, 1, 0.4, 0},
		"no change":  {[]cluster.NodeReport{in(2), in(3), late}, []int{10, 10, 10}, 2.0 / 3, 0, 0},
		"is silent":  {[]cluster.NodeReport{in(2), in(3), silent}, []int{12, 8, 30}, 1, 0.4, 0},
		"one behind": {[]cluster.NodeReport{in(2), in(3), older}, []int{12, 8, 20}, 2.0 / 3, 0.4, 10 * (0.3 - 0.7) / 4.3},
		// Closed after 2.6 s instead of 3, the third is late by 0.7 s of its 3.3 instead of 0.3.
		"one late": {[]cluster.NodeReport{in(2), in(3), late}, []int{12, 8, 10}, 2.0 / 3, 0.4, 10 * (0.3 - 0.7) / 3.3},
		// With half a batch more it is late by 3.3 * 2/1.5 - 2.6 = 1.8 s of 4.4; its 15 samples still come a round late.
		"later": {[]cluster.NodeReport{in(2), in(3), late}, []int{12, 8, 15}, 2.0 / 3, 0.4, 5*0.5 + 10*0.3/3.3 - 15*1.8/4.4},
		// Its older work came in after 2 s; what it began then would be done after 2 + 2.5 s rather than 3.5.
		"two": {[]cluster.NodeReport{in(2), in(3), two}, []int{12, 8, 20}, 2.0 / 3, 0.4, 10*0.5 + 10*0.5/1.5 - 20*1.9/2.5},
	} {
		tracker := NewTracker(lines(t, len(x.nodes), 30))
		report := &cluster.Report{Wait: 3 * time.Second, Counted: 20, Nodes: x.nodes}
		tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: x.quorum}}, len(x.nodes))
		tracker.Observe(report)
		got, known := tracker.Regret(report, x.shares)
		if want := x.want*20/30/3 + x.plus/30; !known || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v (%v), want %v", name, got, known, want)
		}
		report.Nodes[0].Status = cluster.Lost
		if _, known := tracker.Regret(report, x.shares); known {
			t.Errorf("%s: known in spite of a node that was lost", name)
		}
	}
	tracker := NewTracker(lines(t, 2, 20))
	report := &cluster.Report{Wait: 3 * time.Second, Counted: 20, Nodes: []cluster.NodeReport{in(3), {Status: cluster.Absent}}}
	tracker.Observe(report)
	if _, known := tracker.Regret(report, []int{12, 8}); known {
		t.Error("known in spite of a share of a node that was not there")
	}
	if _, known := tracker.Regret(report, []int{0, 0}); known {
		t.Error("known without any share")
	}
}

// Where all are waited for, a regret is what a simulation of the same round with the other shares takes less, at what a second brings.
func TestRegretIsWhatTheOthersTake(t *testing.T) {
	c := envtest.Mixed(t, 12)
	s, tracker := sim.New(c, envtest.Preset(t, "bursts"), 3), NewTracker(c)
	sizes, others := make([]int, 12), make([]int, 12)
	if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil {
		t.Fatal(err)
	}
	copy(others, sizes)
	for i := range len(others) / 2 {
		move := 1 + i%3
		others[i], others[11-i] = others[i]-move, others[11-i]+move
	}
	tracker.SetRule(cluster.Collect{}, 12)
	var ahead sim.Simulator
	for round := range 60 {
		ahead.CopyFrom(s)
		would, err := ahead.Round(context.Background(), cluster.Plan{Sizes: others})
		if err != nil {
			t.Fatal(err)
		}
		wait := would.Wait.Seconds()
		report, err := s.Round(context.Background(), cluster.Plan{Sizes: sizes})
		if err != nil {
			t.Fatal(err)
		}
		tracker.Observe(report)
		got, known := tracker.Regret(report, others)
		if want := (report.Wait.Seconds() - wait) * tracker.round.rate; !known || math.Abs(got-want) > 1e-6 {
			t.Fatalf("round %d: %v (%v), want %v", round, got, known, want)
		}
	}
}
