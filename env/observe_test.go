package env

import (
	"math"
	"testing"

	"evenkeel/cluster"
)

// The fleet's numbers by hand, of two nodes that were measured.
func TestFleetIsTheMeanOfItsNodes(t *testing.T) {
	a, b := &track{belief: noisy(0.06)}, &track{belief: noisy(0.03)}
	a.residual, a.product, a.newest[0] = 0.12, 5, 1.3    // two deviations, clipped at four variances, slow
	b.residual, b.product, b.newest[0] = -0.3, -0.5, 1.2 // clipped at four deviations, not slow yet
	var f fleet
	f.add(a)
	f.add(b)
	f.average(2)
	for name, x := range map[string][2]float64{
		"residual": {f.residual, -1}, "absolute": {f.absolute, 3}, "product": {f.product, 1.75}, "deviation": {f.deviation, math.Ln2 / 2}, "slow": {f.slow, 0.5},
	} {
		if !near(x[0], x[1]) {
			t.Errorf("%s %v, want %v", name, x[0], x[1])
		}
	}
	var slow fleet
	a.newest[0], a.level = 2.5, 2 // more than 1.2 of its level
	b.newest[0], b.level = 2.45, 2
	slow.add(a)
	slow.add(b)
	if b.newest[0] = 2.35; slow.slow != 2 {
		t.Errorf("%v slow nodes, want 2", slow.slow)
	}
	if slow.add(b); slow.slow != 2 {
		t.Errorf("%v slow nodes, want 2", slow.slow)
	}
	none := fleet{}
	if none.average(0); none != (fleet{}) {
		t.Errorf("the mean of no nodes is %+v", none)
	}
}

func TestObserveTheFleet(t *testing.T) {
	r := newRig(t, 4)
	for range 3 { // how wrong the profiles are is no jump
		r.round(-1, 1, 1, 1, 2)
	}
	if r.tracker.fleet.jumps != 0 || r.tracker.fleet.excess != 0 || r.tracker.fleet.missing != 0 {
		t.Fatalf("%+v", r.tracker.fleet)
	}
	report := r.report(20, 3, 1, 1, 2)
	r.tracker.Predict(report.Wait.Seconds() / 1.5)
	report.Nodes[2].Status, report.Nodes[2].Samples = cluster.Late, 0
	r.tracker.Observe(report)
	f := r.tracker.fleet
	// One of the three that were measured jumped, in the round after the third.
	if !near(f.jumps, 1.0/3/3) || !near(f.excess, 0.5) || !near(f.missing, 0.25) || f.predicted != 0 {
		t.Errorf("jumps %v, excess %v, missing %v, predicted %v", f.jumps, f.excess, f.missing, f.predicted)
	}
	r.tracker.rounds = 1000
	before := f.jumps
	if r.tracker.Observe(r.report(20, 3, 1, 1, 2)); !near(r.tracker.fleet.jumps, 0.98*before+0.02/4) { // nobody told the belief
		t.Errorf("jumps %v after %v", r.tracker.fleet.jumps, before)
	}
	if r.tracker.fleet.excess != 0 {
		t.Errorf("excess %v of no prediction", r.tracker.fleet.excess)
	}
	if r.tracker.Noise(0) < 1 || r.tracker.Late(0) {
		t.Errorf("noise %v, late %v", r.tracker.Noise(0), r.tracker.Late(0))
	}
	r.tracker.nodes[1].pooled = 0.06
	if got := r.tracker.Noise(1); !near(got, 2) {
		t.Errorf("noise %v of 0.06", got)
	}
}

// The first measurements of a node, by hand.
func TestMeasure(t *testing.T) {
	r := newRig(t, 2)
	n, node := &r.tracker.nodes[0], &r.cluster.Nodes[0]
	take := func(factor float64) bool {
		report := r.report(20, factor, 1)
		n.see(&report.Nodes[0], report.Wait.Seconds())
		return n.measure(node, &report.Nodes[0], false)
	}
	if take(3) || !near(n.residual, 2) || n.calm != 1 {
		t.Errorf("the first measurement cannot jump: %+v", n.filter)
	}
	if !near(n.deviation(), priorDeviation) {
		t.Errorf("one measurement tells of no noise: %v", n.deviation())
	}
	n.slowdown = 3
	if take(3.03) || !near(n.residual, 0.01) || n.calm != 2 {
		t.Errorf("a small change: %+v", n.filter)
	}
	if want := normalAbs*priorDeviation + 0.25*(0.01-normalAbs*priorDeviation); !near(n.deviance, want) {
		t.Errorf("deviance %v, want %v", n.deviance, want)
	}
	if !take(9) || n.calm != 0 {
		t.Errorf("suddenly slower: %+v", n.filter)
	}
	n.variance = 0.1
	if take(1) || n.calm != 0 {
		t.Errorf("suddenly faster is no slowdown: %+v", n.filter)
	}
}

func TestHidden(t *testing.T) {
	for spikes, want := range map[float64]float64{0: 1, 1: 1 / 1.07, 2: 1 / 1.28, 10: 1.0 / 8} {
		if got := Hidden(spikes); !near(got, want) {
			t.Errorf("%v spikes leave %v, want %v", spikes, got, want)
		}
	}
}
