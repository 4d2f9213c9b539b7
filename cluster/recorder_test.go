package cluster

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// part is a stretch of a node's work: a share, and what became of it.
type part struct {
	size, behind       int
	model, start, stop time.Duration
	verdict            Verdict
	lost, done         bool
}

// parts are a node's stretches of work in a round, from its events and how they were judged.
func parts(node int, sizes map[time.Duration]int, events []event, o outcome, models []time.Duration) []part {
	var all []part
	next := part{size: sizes[opened], model: opened, start: opened}
	for k, m := range models { // older work is of round k, and the round under way has the number len(models)
		if i := slices.IndexFunc(events, func(e event) bool { return e.node == node && !e.lost && e.model < opened }); i >= 0 && events[i].model == m {
			next = part{size: sizes[m], behind: len(models) - k, model: m, start: m}
		}
	}
	for i, e := range events[:o.seen] {
		if e.node != node {
			continue
		}
		next.stop, next.done, next.lost, next.verdict = e.at, true, e.lost, o.verdicts[i]
		all = append(all, next)
		if next.model == opened || e.lost {
			return all
		}
		next = part{size: sizes[opened], model: opened, start: e.at}
	}
	return append(all, next)
}

// described is the report of a round put together from its parts, node by node, once all
// is known: what the Recorder does event by event.
func described(c Collect, n int, events []event, o outcome, sizes map[time.Duration]int, models []time.Duration, p Power) Report {
	r := Report{Round: len(models), Start: opened, Wait: o.end - opened, Nodes: make([]NodeReport, n)}
	for i := range n {
		node := &r.Nodes[i]
		all := parts(i, sizes, events, o, models)
		worked := time.Duration(0)
		for _, w := range all {
			until := o.end
			if w.done {
				until = w.stop
			}
			worked += until - max(w.start, opened)
			if !w.done || w.lost {
				continue
			}
			node.Size, node.Behind = w.size, w.behind
			node.Seconds, node.Age = (w.stop - w.start).Seconds(), (w.stop - w.model).Seconds()
			if w.verdict == Fresh || w.verdict == Aged {
				node.Samples += w.size
				r.Accepted += w.size
				if w.verdict == Aged {
					node.Aged += w.size
				}
			}
		}
		accepted := slices.ContainsFunc(all, func(w part) bool { return w.verdict == Fresh || w.verdict == Aged })
		refused := slices.ContainsFunc(all, func(w part) bool { return w.verdict == Stale })
		last := all[len(all)-1]
		timedOut := c.Timeout > 0 && o.end == opened+c.Timeout && !accepted && !refused && !last.done
		switch {
		case last.lost || timedOut:
			node.Status = Lost
		case accepted:
			node.Status = In
		case refused:
			node.Status = Refused
		default:
			node.Status = Late
			node.Size, node.Seconds = last.size, (o.end - last.start).Seconds()
		}
		if !last.done && !timedOut {
			node.Busy, node.BusySize = (o.end - last.start).Seconds(), last.size
		}
		if last.done && !last.lost {
			node.Idle = (o.end - last.stop).Seconds()
		}
		node.Joules = p.Busy*worked.Seconds() + p.Idle*(o.end-opened-worked).Seconds()
	}
	for i, e := range events[:o.seen] {
		if v := o.verdicts[i]; v == Fresh || v == Aged {
			behind := 0
			if e.model < opened {
				behind = len(models) - slices.Index(models, e.model)
			}
			r.Counted += float64(sizes[e.model]) / float64(1+behind)
		}
	}
	return r
}

func TestRecorderByDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, n, events, ends := drawRound(t)
		o := definition(c, n, events)
		if !ends && !o.closed {
			return // nothing to report
		}
		// A round for every model of older work, closed before anything arrives.
		var models []time.Duration
		sizes := map[time.Duration]int{opened: rapid.IntRange(1, 50).Draw(t, "size")}
		for _, e := range events {
			if _, ok := sizes[e.model]; !ok && !e.lost {
				models, sizes[e.model] = append(models, e.model), rapid.IntRange(1, 50).Draw(t, "older size")
			}
		}
		slices.SortFunc(models, cmp.Compare)
		p := Power{Idle: 1e9, Busy: 3e9} // a nanosecond counts
		nodes := &Cluster{Nodes: make([]Node, n)}
		for i := range nodes.Nodes {
			nodes.Nodes[i].Power = p
		}
		r := NewRecorder(nodes)
		for k, m := range models {
			present := make([]bool, n)
			for _, e := range events {
				present[e.node] = present[e.node] || e.model == m && !e.lost
			}
			r.Open(k, m, Collect{}, present)
			for i := range present {
				r.HandOut(i, sizes[m], m)
			}
			r.Close(m)
		}
		r.Open(len(models), opened, c, nil)
		handOut := func(now time.Duration) {
			for i := range n {
				r.HandOut(i, sizes[opened], now)
			}
		}
		handOut(opened)
		for i, e := range events {
			if e.lost {
				r.Lose(e.node, e.at, false)
			} else {
				share, _ := r.Share(e.node)
				if v := r.Receive(e.node, e.at, Gradient{Samples: share.Size}); v != o.verdicts[i] {
					t.Fatalf("%+v\n%d nodes: %+v\nevent %d: %v, want %v", c, n, events, i, v, o.verdicts[i])
				}
			}
			handOut(e.at)
		}
		r.Expire()
		want := described(c, n, events, o, sizes, models, p)
		near := gocmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) })
		if diff := gocmp.Diff(want, *r.Report(), near); diff != "" {
			t.Fatalf("%+v\n%d nodes: %+v\n%+v\n%s", c, n, events, o, diff)
		}
	})
}

// Three nodes of which all are waited for, opened at 10 s as round 7.
func recorded(collect Collect) *Recorder {
	r := NewRecorder(&Cluster{Nodes: make([]Node, 3)})
	r.Open(7, 10*time.Second, collect, nil)
	for i := range 3 {
		r.HandOut(i, 5+i, 10*time.Second)
	}
	return r
}

func TestRecorderKeepsWhatTheNodeMeasured(t *testing.T) {
	r := recorded(Collect{})
	if v := r.Receive(1, 12*time.Second, Gradient{Samples: 4, Seconds: 1.5, Age: 1.75, Norm: 3, Agree: 0.5}); v != Fresh {
		t.Fatal(v)
	}
	want := NodeReport{Status: In, Size: 4, Samples: 4, Seconds: 1.5, Age: 1.75, Norm: 3, Agree: 0.5}
	if diff := gocmp.Diff(want, r.Report().Nodes[1]); diff != "" {
		t.Error(diff)
	}
	if !r.Report().Nodes[1].Measured() {
		t.Error("not measured")
	}
	// A node that stopped before its first sample was done says nothing of its speed.
	if r.Receive(0, 13*time.Second, Gradient{}); r.Report().Nodes[0].Measured() || r.Report().Nodes[0].Status != In {
		t.Errorf("%+v", r.Report().Nodes[0])
	}
}

func TestRecorderEndsWhenTold(t *testing.T) {
	r := recorded(Collect{})
	r.Receive(0, 11*time.Second, Gradient{Samples: 5})
	if _, closed := r.Closed(); closed {
		t.Fatal("closed")
	}
	r.Close(13 * time.Second)
	r.Close(14 * time.Second)
	if end, closed := r.Closed(); !closed || end != 13*time.Second {
		t.Errorf("%v %v", end, closed)
	}
	want := Report{Round: 7, Start: 10 * time.Second, Wait: 3 * time.Second, Accepted: 5, Counted: 5, Nodes: []NodeReport{
		{Status: In, Size: 5, Samples: 5, Seconds: 1, Age: 1, Idle: 2},
		{Status: Late, Size: 6, Seconds: 3, Busy: 3, BusySize: 6}, {Status: Late, Size: 7, Seconds: 3, Busy: 3, BusySize: 7},
	}}
	if diff := gocmp.Diff(want, *r.Report()); diff != "" {
		t.Error(diff)
	}
	// What comes after the end changes nothing of the report, and the work goes on.
	if v := r.Receive(1, 15*time.Second, Gradient{Samples: 6}); v != 0 {
		t.Error(v)
	}
	r.Lose(2, 15*time.Second, true)
	if diff := gocmp.Diff(want, *r.Report()); diff != "" {
		t.Error(diff)
	}
	share, busy := r.Share(1)
	if want := (Share{Size: 6, Round: 7, Model: 10 * time.Second, Start: 10 * time.Second}); share != want || !busy {
		t.Errorf("%+v %v", share, busy)
	}
	// Rounds 8 and 9 were recorded elsewhere.
	r.Open(10, 16*time.Second, Collect{}, []bool{true, true, false})
	for i, want := range []bool{true, false, false} {
		if got := r.Waiting(i); got != want {
			t.Errorf("node %d waits for a share: %v", i, got)
		}
	}
	if v := r.Receive(1, 17*time.Second, Gradient{Samples: 6}); v != Aged {
		t.Error(v)
	}
	if n := r.Report().Nodes[1]; n.Behind != 3 || n.Age != 7 || n.Seconds != 7 || math.Abs(r.Report().Counted-6./4) > 1e-12 || !r.Waiting(1) {
		t.Errorf("%+v", n)
	}
	if r.Report().Nodes[2].Status != Absent {
		t.Errorf("%+v", r.Report().Nodes[2])
	}
}

func TestRecorderIgnoresWhatCannotBe(t *testing.T) {
	r := recorded(Collect{})
	r.HandOut(0, 50, 11*time.Second) // at work already
	if share, busy := r.Share(0); share.Size != 5 || !busy {
		t.Errorf("%+v %v", share, busy)
	}
	r.Receive(0, 12*time.Second, Gradient{Samples: 5})
	before := *r.Report()
	before.Nodes = slices.Clone(before.Nodes)
	if v := r.Receive(0, 12*time.Second, Gradient{Samples: 5}); v != 0 || r.Waiting(0) {
		t.Error("delivered twice:", v)
	}
	r.HandOut(0, 50, 12*time.Second)
	r.Lose(0, 12*time.Second, false) // after it delivered
	if _, busy := r.Share(0); busy {
		t.Error("has a second share of the round")
	}
	if diff := gocmp.Diff(before, *r.Report()); diff != "" {
		t.Error(diff)
	}
	// The two others are still waited for.
	r.Receive(1, 13*time.Second, Gradient{Samples: 6})
	if _, closed := r.Closed(); closed {
		t.Error("closed without the third")
	}
	r.Lose(2, 14*time.Second, true)
	if end, closed := r.Closed(); !closed || end != 14*time.Second {
		t.Errorf("%v %v", end, closed)
	}
	if n := r.Report().Nodes[2]; n.Status != Lost || !n.OOM {
		t.Errorf("%+v", n)
	}
}
