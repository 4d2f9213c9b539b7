package cluster

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A node true to its belief takes full micro-steps and one that no accepted size could
// exceed; it ends by the deadline, unless its smallest micro-step does not fit.
func TestAccumulationUntilDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 1, 40)
		n, full := &in.cluster.Nodes[0], in.full(0)
		if in.present != nil || full == 0 || n.Limit > 2*in.cluster.GlobalBatch+8 {
			return
		}
		pace, deadline := 0.25, rapid.Float64Range(0.01, 60).Draw(t, "deadline")
		step := func(b int) float64 {
			s := float64(b)
			if n.Profile != nil {
				s = n.Profile.Seconds(float64(b)) / n.Profile.PerSample()
			}
			return pace * s
		}
		if step(full) < deadline/1000 {
			return // thousands of micro-steps
		}
		order := Order{Share: full, Deadline: deadline, Pace: pace, Reserve: rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "reserve")}
		a, elapsed, total, steps, ended := n.Begin(order), 0.0, 0, 0, false
		for size := a.Next(elapsed); size > 0; size = a.Next(elapsed) {
			if ended || !in.takes(0, size) || size > full {
				t.Fatalf("micro-step %d of %d samples, full %d, after a cut one %v", steps, size, full, ended)
			}
			free := (deadline - elapsed) * (1 - order.Reserve)
			if size < full {
				ended = true
				for b := size + 1; b <= full; b++ {
					if in.takes(0, b) && step(b) < free*(1-1e-9) {
						t.Fatalf("%d samples, though %d end in time", size, b)
					}
				}
			}
			if step(size) > free*(1+1e-9) && (steps > 0 || size != n.LeastShare()) {
				t.Fatalf("%d samples take %v, free are %v", size, step(size), free)
			}
			elapsed += step(size)
			a.Done(size, step(size))
			total += size
			steps++
		}
		if got, k := a.Samples(); got != total || k != steps || steps == 0 {
			t.Fatalf("%d in %d, not %d in %d", got, k, total, steps)
		}
	})
}

// Without a deadline the node computes its share, in as many micro-steps as Steps returns; their
// cost is the share's.
func TestAccumulationOfAShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 1, 60)
		n := &in.cluster.Nodes[0]
		share := in.cluster.GlobalBatch
		in.cluster.SetEqualSteps(rapid.IntRange(0, 4).Draw(t, "equal"))
		if k := n.Equal; in.full(0) == 0 || k == 0 && !in.makes(0, share) || k > 0 && in.equalParts(0, share, k) == nil {
			if n.Takes(share) {
				t.Fatalf("takes %d", share)
			}
			return
		}
		a, cost, sizes := n.Begin(Order{Share: share}), 0.0, []int{}
		if first := a.Next(0); first != n.MicroBatch(share) {
			t.Fatalf("%d of %d first", first, n.MicroBatch(share))
		}
		for size := a.Next(0); size > 0; size = a.Next(0) {
			a.Done(size, 1)
			cost += n.stepCost(size)
			sizes = append(sizes, size)
		}
		if n.Equal > 0 && slices.Max(sizes)-slices.Min(sizes) > 1 {
			t.Fatalf("equal micro-steps of %d", sizes)
		}
		if got, steps := a.Samples(); got != share || steps != n.Steps(share) || math.Abs(cost-n.Cost(share)) > 1e-9*cost || !n.Takes(share) {
			t.Fatalf("%d of %d in %d, cost %v, not %v", got, share, steps, cost, n.Cost(share))
		}
	})
}

// The pace of this round, not the belief, sizes what is left: a node twice as slow as
// believed does half, one twice as quick goes beyond its share.
func TestAccumulationByItsOwnPace(t *testing.T) {
	for _, x := range []struct {
		seconds       float64 // per sample
		whole         bool
		samples, last int
	}{{1, false, 20, 4}, {2, false, 10, 2}, {0.5, false, 40, 4}, {3, false, 6, 2}, {30, false, 4, 4}, {3, true, 4, 4}, {1.1, true, 16, 4}, {1.1, false, 18, 2}} {
		n := Node{Limit: 4}
		a, elapsed, last := n.Begin(Order{Share: 20, Deadline: 20, Pace: 1, Whole: x.whole}), 0.0, 0
		for size := a.Next(elapsed); size > 0; size = a.Next(elapsed) {
			last = size
			elapsed += x.seconds * float64(size)
			a.Done(size, x.seconds*float64(size))
		}
		if got, _ := a.Samples(); got != x.samples || last != x.last {
			t.Errorf("%v s a sample, whole %v: %d samples, the last micro-step %d; want %d and %d", x.seconds, x.whole, got, last, x.samples, x.last)
		}
	}
	// A node whose pace is hardly known begins with a small micro-step, and then knows.
	n := Node{Limit: 4}
	first := n.Begin(Order{Share: 20, Deadline: 20, Pace: 1, First: 1})
	if got := first.Next(0); got != 1 {
		t.Errorf("begins with %d", got)
	}
	first.Done(1, 18)
	if got := first.Next(18); got != 0 {
		t.Errorf("goes on with %d", got)
	}
	if a := n.Begin(Order{Deadline: 20, Pace: 1, Overtime: 5}); a.Next(0) != 0 || a.More(25) != 0 {
		t.Error("a node without a share works")
	}
}

// After the deadline a node takes its smallest micro-steps, as long as they are short enough at
// the pace of this round, the round does not end before, and they are no more than what it did
// in time.
func TestMoreAfterTheDeadline(t *testing.T) {
	for name, x := range map[string]struct {
		node  Node
		order Order
		pace  float64
		at    float64 // of the first question
		want  []int   // sizes until 0
	}{
		"small ones":               {Node{Limit: 4}, Order{Overtime: 1}, 1, 10, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		"the least that it takes":  {Node{Limit: 4, Least: 3}, Order{Overtime: 3}, 1, 10, []int{3, 3}},
		"the smallest shape":       {Node{Limit: 4, Shapes: []int{2, 4}}, Order{Overtime: 2}, 1, 10, []int{2, 2, 2, 2, 2}},
		"too long":                 {Node{Limit: 4, Least: 3}, Order{Overtime: 2.9}, 1, 10, nil},
		"too long at today's pace": {Node{Limit: 4}, Order{Overtime: 1}, 1.5, 10.5, nil},
		"whole":                    {Node{Limit: 4}, Order{Overtime: 4, Whole: true}, 1, 10, []int{4, 4}},
		"whole, a small share":     {Node{Limit: 4}, Order{Overtime: 4, Whole: true, Share: 2}, 1, 10, []int{2, 2, 2, 2, 2}},
		"whole, too long":          {Node{Limit: 4}, Order{Overtime: 3, Whole: true}, 1, 10, nil},
		"before the deadline":      {Node{Limit: 4}, Order{Overtime: 1}, 1, 9.99, nil},
		"the timeout is near":      {Node{Limit: 4}, Order{Overtime: 1, Timeout: 14}, 1, 10, []int{1, 1, 1}},
		"none":                     {Node{Limit: 4}, Order{}, 1, 10, nil},
		"no share":                 {Node{Limit: 4}, Order{Overtime: 1, Share: -1}, 1, 10, nil},
	} {
		o := x.order
		if o.Deadline, o.Pace = 10, 1; o.Share == 0 {
			o.Share = 8
		}
		a, elapsed := x.node.Begin(o), 0.0
		if got := a.More(20); got != 0 {
			t.Errorf("%s: %d before it has ended", name, got)
		}
		for size := a.Next(elapsed); size > 0; size = a.Next(elapsed) {
			elapsed += x.pace * float64(size)
			a.Done(size, x.pace*float64(size))
		}
		inTime, steps := a.Samples()
		elapsed = x.at
		var got []int
		total := inTime
		for size := a.More(elapsed); size > 0; size = a.More(elapsed) {
			got, total = append(got, size), total+size
			elapsed += x.pace * float64(size)
			a.Done(size, x.pace*float64(size))
		}
		same := len(got) == len(x.want)
		for k := range min(len(got), len(x.want)) {
			same = same && got[k] == x.want[k]
		}
		if samples, all := a.Samples(); !same || samples != total || all != steps+len(got) {
			t.Errorf("%s: %v after %d samples, %d in %d, want %v", name, got, inTime, samples, all, x.want)
		}
	}
}
