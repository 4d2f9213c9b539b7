package env

import (
	"context"
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/env/internal/envtest"
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
		shares []int // instead of ten samples for whoever was there
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
		decided := make([]int, len(x.nodes))
		for i, n := range x.nodes {
			if decided[i] = 10; n.Size == 0 {
				decided[i], x.shares[i] = AsIs, AsIs
			}
		}
		got, known := tracker.Regret(report, Play{decided, tracker.Rule()}, Play{x.shares, tracker.Rule()})
		if want := x.want*20/30/3 + x.plus/30; !known || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v (%v), want %v", name, got, known, want)
		}
		report.Nodes[0].Status = cluster.Lost
		if _, known := tracker.Regret(report, Play{decided, tracker.Rule()}, Play{x.shares, tracker.Rule()}); known {
			t.Errorf("%s: known in spite of a node that was lost", name)
		}
	}
	// A third node is tried with a sample, which takes 9 s: with either's shares the round lasts as long. Only one of them has it take part: its
	// time for a sample says what 4 would have taken, 9 * 0.9/0.6 = 13.5 s.
	tried := cluster.NodeReport{Status: cluster.In, Size: 1, Samples: 1, Seconds: 9}
	slow, fast := in(3), in(2)
	slow.Idle, fast.Idle = 6, 7
	for name, x := range map[string]struct {
		third           cluster.Status
		decided, shares []int
		wait, samples   float64
		unknown         bool
	}{
		"tried":      {cluster.In, []int{10, 10, AsIs}, []int{12, 8, AsIs}, 0, 0, false},
		"lost":       {cluster.Lost, []int{10, 10, AsIs}, []int{12, 8, AsIs}, 0.4, 0, false},
		"left out":   {cluster.Absent, []int{10, 10, AsIs}, []int{12, 8, AsIs}, 0.4, 0, false},
		"lost share": {cluster.Lost, []int{10, 10, 1}, []int{12, 8, AsIs}, 0, 0, true},
		"would take": {cluster.In, []int{10, 10, AsIs}, []int{8, 8, 4}, 9 - 13.5, 20 - 21, false},
		"takes":      {cluster.In, []int{8, 8, 4}, []int{10, 10, 0}, 13.5 - 3, 0, false},
		"away":       {cluster.Absent, []int{10, 10, AsIs}, []int{8, 8, 4}, 0, 0, true},
		"was to":     {cluster.Absent, []int{8, 8, 4}, []int{10, 10, AsIs}, 0, 0, true},
	} {
		tracker := NewTracker(lines(t, 3, 20))
		third := tried
		third.Status = x.third
		report := &cluster.Report{Wait: 9 * time.Second, Counted: 20, Nodes: []cluster.NodeReport{fast, slow, third}}
		tracker.Observe(report)
		got, known := tracker.Regret(report, Play{x.decided, tracker.Rule()}, Play{x.shares, tracker.Rule()})
		if want := x.wait*tracker.round.rate + x.samples/20; known == x.unknown || known && math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v (%v), want %v", name, got, known, want)
		}
	}
	tracker := NewTracker(lines(t, 2, 20))
	report := &cluster.Report{Wait: 3 * time.Second, Counted: 20, Nodes: []cluster.NodeReport{in(3), {Status: cluster.Absent}}}
	tracker.Observe(report)
	if _, known := tracker.Regret(report, Play{[]int{20, 0}, tracker.Rule()}, Play{[]int{12, 8}, tracker.Rule()}); known {
		t.Error("known in spite of a share of a node that was not there")
	}
	if _, known := tracker.Regret(report, Play{[]int{20, 0}, tracker.Rule()}, Play{[]int{0, 0}, tracker.Rule()}); known {
		t.Error("known without any share")
	}
}

// Each play is judged under its own rule: the same shares, all of them or two of three, bring 30 samples in 3 s or 20 in 2 s and 10 late, of
// whose node a third of the work is left.
func TestRegretOfRules(t *testing.T) {
	tracker := NewTracker(lines(t, 3, 30))
	node := func(seconds float64) cluster.NodeReport {
		return cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Seconds: seconds, Idle: 3 - seconds}
	}
	report := &cluster.Report{Wait: 3 * time.Second, Counted: 30, Nodes: []cluster.NodeReport{node(1), node(2), node(3)}}
	tracker.Observe(report)
	shares := []int{10, 10, 10}
	all, two := Play{shares, cluster.Rule{Quorum: 1}}, Play{shares, cluster.Rule{Quorum: 2.0 / 3}}
	want := (20.0+10*cluster.Credit(1)-10.0/3)/30 - 1 + tracker.round.rate
	for _, x := range []struct {
		first, second Play
		want          float64
	}{{all, two, want}, {two, all, -want}, {two, two, 0}} {
		if got, known := tracker.Regret(report, x.first, x.second); !known || math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%+v instead of %+v: %v, want %v", x.second.Rule, x.first.Rule, got, x.want)
		}
	}
}

// Rules are judged by the shares given, and not at all without shares.
func TestWatchJudgesByOtherShares(t *testing.T) {
	c := lines(t, 3, 30)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	report := &cluster.Report{Wait: 3 * time.Second, Counted: 30}
	for _, s := range []float64{1, 2, 3} {
		report.Nodes = append(report.Nodes, cluster.NodeReport{Status: cluster.In, Size: 10, Samples: 10, Seconds: s, Idle: 3 - s})
	}
	var means [4][Objectives]float64
	for k, shares := range [][]int{nil, {10, 10, 10}, {14, 10, 6}} {
		tracker := NewTracker(c)
		tracker.Watch(report, shares)
		means[k] = tracker.Means()[0]
	}
	own := NewTracker(c)
	own.Observe(report)
	means[3] = own.Means()[0]
	if means[0] != [Objectives]float64{} || means[1] != means[3] || means[2] == means[1] || means[3] == means[0] {
		t.Errorf("the first rule's values: without shares %v, as they were %v, others %v, observed %v", means[0], means[1], means[2], means[3])
	}
}

// If rounds wait for all nodes, a regret is the time that a simulation of the same round saves with the other shares, times
// the progress per second.
func TestRegretIsWhatTheOthersTake(t *testing.T) {
	c := envtest.Mixed(t, 12)
	bursts := envtest.Preset(t, "bursts")
	s, tracker := sim.New(c, bursts, 3), NewTracker(c)
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
	for round := range 60 {
		ahead := sim.New(c, bursts, 3)
		for range round {
			if _, err := ahead.Round(context.Background(), cluster.Plan{Sizes: sizes}); err != nil {
				t.Fatal(err)
			}
		}
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
		got, known := tracker.Regret(report, Play{sizes, tracker.Rule()}, Play{others, tracker.Rule()})
		if want := (report.Wait.Seconds() - wait) * tracker.round.rate; !known || math.Abs(got-want) > 1e-6 {
			t.Fatalf("round %d: %v (%v), want %v", round, got, known, want)
		}
	}
}
