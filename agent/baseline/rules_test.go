package baseline

import (
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// quorum is K and grace of a round's rule among n nodes.
type quorum struct {
	k     int
	grace float64
}

// after asks p for the rule of the round after one in which all nodes came in after so
// many seconds.
func after(t *testing.T, p agent.Policy, c *cluster.Cluster, seconds ...float64) quorum {
	t.Helper()
	plan := cluster.Plan{Sizes: slices.Repeat([]int{10}, len(c.Nodes)), Collect: cluster.Collect{MaxStaleness: time.Minute, Grace: time.Second}}
	var report *cluster.Report
	if seconds != nil {
		report = agenttest.Measured(plan.Sizes, seconds...)
		for i, s := range seconds {
			report.Nodes[i].Idle = report.Wait.Seconds() - s
		}
	}
	if err := p.Decide(report, nil, &plan); err != nil {
		t.Fatal(err)
	}
	if r := plan.Collect; r.MaxStaleness != time.Minute || r.Grace != 0 {
		t.Errorf("rule %+v: the staleness bound stays, the grace is the rule's", r)
	}
	return quorum{plan.Collect.Quorum.Of(len(c.Nodes)), plan.Collect.GraceShare}
}

func TestKofNByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	p := NewKofN(c, cluster.Rule{Quorum: 0.6, Grace: 0.1}, WaterFill{Gain: 1})
	for _, seconds := range [][]float64{nil, {1, 1, 9}} {
		if got := after(t, p, c, seconds...); got != (quorum{2, 0.1}) {
			t.Errorf("%+v", got)
		}
	}
	// The sizes are water-filling's: TestWaterFillByHand.
	q := NewKofN(c, cluster.Rule{Quorum: 0.6}, WaterFill{Gain: 1})
	sizes := make([]int, 3)
	decide(t, q, sizes, []int{10, 10, 10})
	decide(t, q, sizes, []int{21, 8, 1}, 1.5, 3, 6)
}

func TestDBWByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	first := func(late bool, seconds ...float64) int {
		p := NewDBW(c, 10, late, WaterFill{Gain: 1})
		if got := after(t, p, c); got != (quorum{3, 0}) {
			t.Errorf("before anything is known: %+v", got)
		}
		return after(t, p, c, seconds...).k
	}
	// Norms of 1 tell nothing of the noise scale: samples per second.
	if k := first(false, 1, 1.2, 3); k != 2 { // 10/1, 20/1.2, 30/3
		t.Errorf("K %d, want 2", k)
	}
	if k := first(false, 1, 1.2, 1.7); k != 3 { // 10/1, 20/1.2 = 16.7, 30/1.7 = 17.6
		t.Errorf("K %d, want 3", k)
	}
	if k := first(false, 1, 2.1, 3.3); k != 1 { // 10/1, 20/2.1, 30/3.3
		t.Errorf("K %d, want 1", k)
	}
	// A late gradient is worth half its samples, less what its node misses: with
	// 10*(1/2 - 0.5/1.7) more two nodes are enough.
	if k := first(true, 1, 1.2, 1.7); k != 2 {
		t.Errorf("K %d, want 2", k)
	}
}

// Averages move toward the newest round, by their window.
func TestDBWWindow(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	p := NewDBW(c, 4, false, WaterFill{Gain: 1}).(*dbw)
	for _, last := range []float64{1.2, 1.2, 3, 3, 3, 3, 3} {
		after(t, p, c, 1, 1, last)
	}
	// 1.2, 1.2, 1.8 (a third), then a quarter each.
	want := 1.8
	for range 4 {
		want += (3 - want) / 4
	}
	if got := p.ranks[dbwRanks-1].seconds; math.Abs(got-want) > 1e-9 {
		t.Errorf("time of all: %v, want %v", got, want)
	}
}

// Where gradients are mostly noise more samples are worth more; where they are not, the
// first will do.
func TestDBWWeighsNoise(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	for _, x := range []struct {
		scale float64 // samples
		want  int
	}{
		{10, 1},   // 10*10/20 = 5 in 1 s, 20*10/30 = 6.7 in 1.6 s, 30*10/40 = 7.5 in 2.1 s
		{1000, 3}, // 9.9, 19.6 in 1.6 s, 29.1 in 2.1 s
	} {
		p := NewDBW(c, 10, false, WaterFill{Gain: 1})
		after(t, p, c)
		report := agenttest.Measured([]int{10, 10, 10}, 1, 1.6, 2.1)
		withNoise(report, x.scale)
		plan := cluster.Plan{Sizes: make([]int, 3)}
		for i, s := range []float64{1, 1.6, 2.1} {
			report.Nodes[i].Idle = 2.1 - s
		}
		if err := p.Decide(report, nil, &plan); err != nil {
			t.Fatal(err)
		}
		if k := plan.Collect.Quorum.Of(3); k != x.want {
			t.Errorf("noise scale %v: K %d, want %d", x.scale, k, x.want)
		}
	}
}

func TestDropComputeByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	p := NewDropCompute(c, 2, false, WaterFill{Gain: 1})
	all := quorum{3, 0}
	if got := after(t, p, c); got != all {
		t.Errorf("before anything is known: %+v", got)
	}
	// Half of three are two. 20 samples in 1.1 s, or 30 in 3: no grace.
	if got := after(t, p, c, 1, 1.1, 3); got != (quorum{2, 0}) {
		t.Errorf("%+v", got)
	}
	// A second round: 20 in 1 s, 30 in 1.2. Together 40 in 2.1 s, or 50 by a fifth more: 2.52.
	// So 40 it is, at 19.05 a second against 19.8: the grace is the first of the grid past 0.2.
	got := after(t, p, c, 1, 1, 1.2)
	k := slices.IndexFunc(dropGraces[:], func(g float64) bool { return g >= 0.2 })
	if got != (quorum{2, dropGraces[k]}) {
		t.Errorf("%+v, want a grace of %v", got, dropGraces[k])
	}
	// The window holds two rounds; where everybody is nearly in time, all are waited for.
	after(t, p, c, 1, 1, 1.2)
	if got := after(t, p, c, 1, 1, 1.2); got != all {
		t.Errorf("%+v", got)
	}
}

func TestDropGraces(t *testing.T) {
	if dropGraces[0] != 0 || !slices.IsSorted(dropGraces[:]) {
		t.Errorf("graces %v", dropGraces)
	}
}

// A rule waits for a late node only while that pays, whatever its time is.
func TestRulesUnderLateNodes(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	for name, p := range map[string]agent.Policy{
		"dbw": NewDBW(c, 10, false, WaterFill{Gain: 1}), "dropcompute": NewDropCompute(c, 10, false, WaterFill{Gain: 1}),
	} {
		plan := cluster.Plan{Sizes: make([]int, 3)}
		if err := p.Decide(nil, nil, &plan); err != nil {
			t.Fatal(err)
		}
		report := agenttest.Measured([]int{10, 10, 10}, 1, 1, 1)
		report.Nodes[2] = cluster.NodeReport{Status: cluster.Late, Size: 10, Seconds: 1, Busy: 1, BusySize: 10}
		if err := p.Decide(report, nil, &plan); err != nil {
			t.Fatal(err)
		}
		if k := plan.Collect.Quorum.Of(3); k != 3 {
			t.Errorf("%s: K %d while the late node's time is open", name, k)
		}
		agenttest.CheckSizes(t, c, nil, plan.Sizes)
		// It delivers four seconds after it began, in a round that opened at 1 s.
		report.Start, report.Wait = time.Second, 3*time.Second
		report.Nodes[0].Idle, report.Nodes[1].Idle = 2, 2
		report.Nodes[2] = cluster.NodeReport{Status: cluster.In, Size: 10, Seconds: 4, Age: 4, Behind: 1, Samples: 10, Aged: 10}
		if err := p.Decide(report, nil, &plan); err != nil {
			t.Fatal(err)
		}
		if k := plan.Collect.Quorum.Of(3); k != 2 {
			t.Errorf("%s: K %d, two of three gradients come four times as soon", name, k)
		}
		agenttest.CheckSizes(t, c, nil, plan.Sizes)
	}
}
