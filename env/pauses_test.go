package env

import (
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
)

// Announced pauses by hand: nodes take 1.5 s for 10 samples, and their noise is 3%.
func TestPausesByHand(t *testing.T) {
	begin := func(fleet float64) (tr *Tracker, round func(seconds, pause float64) *cluster.Report) {
		tr = NewTracker(lines(t, 2, 20))
		tr.pauses.nodes, tr.pauses.kept = make([]pause, 2), fleet
		tr.Predict(1.5)
		return tr, func(seconds, pause float64) *cluster.Report {
			r := &cluster.Report{Wait: 4 * time.Second, Counted: 20, Nodes: []cluster.NodeReport{
				{Status: cluster.In, Size: 10, Samples: 10, Seconds: seconds, Pause: pause}, {Status: cluster.In, Size: 10, Samples: 10, Seconds: 1.5},
			}}
			if seconds == 0 {
				r.Nodes[0] = cluster.NodeReport{Pause: pause}
			}
			tr.Observe(r)
			return r
		}
	}
	for name, x := range map[string]struct {
		before, seconds, due float64 // before: what of earlier announcements came
		took, kept           float64
	}{
		"it comes":                   {1, 2.52, 1, 1, 1},
		"it does not":                {1, 1.54, 1, 0, 0.5},
		"a little quicker":           {1, 1.4, 1, 0, 0.5},
		"half of it":                 {1, 2, 1, 0.5, 0.75},
		"half as much again":         {1, 3, 1, 1, 1.25},
		"far more":                   {1, 9.5, 1, 1, 1.5},
		"short, and comes":           {1, 1.65, 0.15, 0.15, 1},
		"short, and does not":        {1, 1.56, 0.15, 0, 0.5},
		"nobody believes it, and so": {0.2, 2.52, 1, 0, 0.6},
		"not even if much more":      {0.2, 9.5, 1, 0, 0.6},
		"nor if it is short":         {0.2, 1.65, 0.15, 0, 0.1},
		"left out":                   {1, 0, 1, 0, 0.5},
	} {
		tr, round := begin(x.before)
		round(1.5, x.due)
		report := round(x.seconds, 0)
		p := tr.Belief(0).Pause
		if math.Abs(p.Took-x.took) > 1e-9 || math.Abs(p.Kept-x.kept) > 1e-2 || p.Due != x.due || p.Announced != 0 {
			t.Errorf("%s: %+v", name, p)
		}
		if got := tr.nodes[0].seconds; x.seconds > 0 && math.Abs(got-(x.seconds-x.took)) > 1e-9 {
			t.Errorf("%s: measured %v s", name, got)
		}
		if want := map[bool]float64{true: x.kept, false: x.before}[x.seconds > 0]; math.Abs(tr.pauses.kept-want) > 1e-2 {
			t.Errorf("%s: of all nodes' %v", name, tr.pauses.kept)
		}
		if report.Nodes[0].Seconds != x.seconds {
			t.Errorf("%s: the report changed", name)
		}
		if s := x.seconds; s > 2.4 && x.before == 1 { // a node with 20 samples instead, after the same pause
			plays := [2]Play{{[]int{10, 10}, tr.Rule()}, {[]int{20, 10}, tr.Rule()}}
			report.Wait = time.Duration(s * 1e9)
			regret, known := tr.Regret(report, plays[0], plays[1])
			if want := 0.5 - tr.round.rate*(s-x.took)*2.5/1.5 + tr.round.rate*(s-x.took); !known || math.Abs(regret-want) > 1e-6 {
				t.Errorf("%s: regret %v, want %v", name, regret, want)
			}
		}
	}
}

// Shares leave room for what is likely to come: by the node's own announcements or, before the first, by those of the others.
func TestRoomForPauses(t *testing.T) {
	tr := NewTracker(lines(t, 2, 20))
	tr.Predict(2)
	occupied := func() float64 {
		perf, ready := tr.cluster.Nominal(), make([]cluster.Performance, 2)
		tr.Occupy(perf, ready)
		if ready[1] != perf[1] {
			t.Error("room for a node that announced nothing")
		}
		return ready[0].Overhead - perf[0].Overhead
	}
	if occupied() != 0 || tr.Belief(0).Pause != (Pause{}) {
		t.Error("room, and nothing was announced")
	}
	for _, x := range []struct{ own, count, fleet, announced, room float64 }{
		{0, 0, 1, 1, 1},
		{0, 0, 0.5, 1, 0.5},
		{0, 0, 0.29, 1, 0},
		{0.8, 1, 0.1, 1, 0.8},
		{1.5, 1, 1, 1, 1.5},
		{0.29, 1, 1, 1, 0},
		{1, 1, 1, 100, 6},
	} {
		tr.pauses = pauses{nodes: []pause{{announced: x.announced, kept: x.own, count: x.count}, {}}, kept: x.fleet}
		if got := occupied(); math.Abs(got-x.room) > 1e-9 || tr.Belief(0).Pause.Room != got {
			t.Errorf("%+v: room for %v s, %+v", x, got, tr.Belief(0).Pause)
		}
	}
}
