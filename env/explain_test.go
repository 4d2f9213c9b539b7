package env

import (
	"slices"
	"testing"

	"evenkeel/cluster"
)

// Every column has a name of its own, and the names are those of the columns.
func TestFeatureNames(t *testing.T) {
	if len(ObjectiveNames) != Objectives || len(FeatureNames) != Features {
		t.Fatalf("%d names of %d features", len(FeatureNames), Features)
	}
	r := newRig(t, 4)
	r.cluster.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	report := r.report(20, 1, 1.3, 1, 1)
	report.Nodes[3].Status, report.Nodes[3].BusySize = cluster.Late, 20
	report.Nodes[3].Busy = 2 * report.Nodes[3].Seconds
	r.tracker.Observe(report)
	r.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: 0.75}, GraceShare: 0.1}, 4)
	weights := [Objectives]float64{0.5, 0.2, 0.2, 0.1}
	rows := r.tracker.Rows(nil, weights)
	node := func(i int) []float32 { return rows[i*Features:][:Features] }
	for _, x := range []struct {
		row  []float32
		name string
		want float32
	}{
		{node(0), "measured in the last round", 1}, {node(3), "measured in the last round", 0},
		{node(3), "late in the last round", 1}, {node(3), "older work under way", 1}, {node(0), "older work under way", 0},
		{node(0), "suddenly slower times in a row", 0}, {node(0), "fleet: odds that a jump lasts", 0}, {node(0), "fleet: share of nodes not measured", 0.5},
		{node(0), "quorum in force", 0.5}, {node(0), "grace in force", 0.2}, {node(0), "weight of freshness", 0.2},
	} {
		k := slices.Index(FeatureNames, x.name)
		if k < 0 || x.row[k] != x.want {
			t.Errorf("column %d, %q: %v, want %v", k, x.name, x.row[max(k, 0)], x.want)
		}
	}
	for i, name := range FeatureNames {
		if slices.Index(FeatureNames, name) != i {
			t.Errorf("%q is there twice", name)
		}
	}
}

// A belief shows what Apply did.
func TestBelief(t *testing.T) {
	r := newRig(t, 2)
	if b := r.tracker.Belief(0); b.Slowdown != 1 || b.Newest != 0 || b.Level != 1 {
		t.Errorf("before the first round %+v", b)
	}
	r.round(action(t, Jump, 0), 1.5, 1)
	if b := r.tracker.Belief(0); !near(b.Slowdown, 1.5) || !near(b.Newest, 1.5) || b.Gain != 1 || b.Variance != 1 || !near(b.Margin, margins[1]*r.tracker.spread) || b.Left != 0 {
		t.Errorf("after a jump %+v", b)
	}
}

// Of a node without a profile a belief shows how much of its time is overhead; of any node how far it lags behind.
func TestBeliefShowsFormAndLag(t *testing.T) {
	tracker, c := unknown(t)
	if b := tracker.Belief(0); b.Overhead != 0 || b.Doubt != 0 {
		t.Errorf("before its first measurement: %+v", b)
	}
	tracker.Observe(oneNode(20, 1))
	if b := tracker.Belief(0); !near(b.Overhead, 0.25) || !near(b.Doubt, 0.3) || b.Lag != 0 {
		t.Errorf("after it: %+v", b)
	}
	tracker.nodes[0].average = 1.3
	if b := tracker.Belief(0); !near(b.Lag, b.Deviation) {
		t.Errorf("lag %v of a deviation of %v", b.Lag, b.Deviation)
	}
	known := NewTracker(c)
	known.nodes[0].unknown = false
	known.Observe(oneNode(20, 1))
	if b := known.Belief(0); b.Overhead != 0 || b.Doubt != 0 {
		t.Errorf("of a profiled node: %+v", b)
	}
}
