package memory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/cluster"
)

// drive plays rounds of one node whose memory holds so many samples, each with a share of many
// micro-steps, and returns the rounds in which it ran out of memory.
func drive(l *Learner, c *cluster.Cluster, rounds, share int, timed bool, holds func(round int) int) (failures []int) {
	for round := range rounds {
		x := &c.Nodes[0]
		r := cluster.Report{Nodes: make([]cluster.NodeReport, 1)}
		step := min(share, x.Full())
		if timed {
			step = x.Full()
		}
		switch {
		case l.Out(0):
		case step > holds(round):
			r.Nodes[0] = cluster.NodeReport{Status: cluster.Lost, OOM: true}
			failures = append(failures, round)
		default:
			r.Nodes[0] = cluster.NodeReport{Status: cluster.In, Size: share, Steps: x.Steps(share)}
		}
		l.Observe(&r, []int{share}, timed)
	}
	return failures
}

// The limit falls at once, approaches what memory holds, and failures become rare.
func TestLearn(t *testing.T) {
	for _, timed := range []bool{false, true} {
		for holds := 1; holds <= 40; holds++ {
			c := &cluster.Cluster{Nodes: []cluster.Node{{Name: "a", Limit: 40}}}
			l := New(c)
			failures := drive(l, c, 20_000, 200, timed, func(int) int { return holds })
			if holds == 40 {
				if len(failures) > 0 || l.Learnt(0) != 0 || c.Nodes[0].Limit != 40 {
					t.Fatalf("failures %v, limit %d", failures, c.Nodes[0].Limit)
				}
				continue
			}
			if l.Settle(); l.Learnt(0) != holds || c.Nodes[0].Limit != holds {
				t.Errorf("timed %v: %d fit, learnt %d", timed, holds, l.Learnt(0))
			}
			late := 0
			for _, f := range failures {
				if f >= 5000 {
					late++
				}
			}
			if len(failures) > 20 || late > 8 || !slices.Contains(failures, 0) {
				t.Errorf("timed %v: %d fit, failures in rounds %v", timed, holds, failures)
			}
			for k := 2; k+1 < len(failures); k++ { // intervals grow
				if a, b := failures[k]-failures[k-1], failures[k+1]-failures[k]; b < a/2 {
					t.Errorf("%d fit: failures in rounds %v", holds, failures)
					break
				}
			}
		}
	}
}

// By hand: half of what failed, or what went well where that is more; memory that was taken by
// something else is found again.
func TestLowerAndRaise(t *testing.T) {
	c := &cluster.Cluster{Nodes: []cluster.Node{{Limit: 32}}}
	l := New(c)
	drive(l, c, 1, 64, false, func(int) int { return 20 })
	if c.Nodes[0].Limit != 16 || l.Learnt(0) != 16 {
		t.Errorf("%d after the first failure", c.Nodes[0].Limit)
	}
	if got := drive(l, c, 64, 64, false, func(int) int { return 20 }); len(got) > 0 || c.Nodes[0].Limit != 24 {
		t.Errorf("raised to %d, failures %v", c.Nodes[0].Limit, got)
	}
	if drive(l, c, 1, 64, false, func(int) int { return 20 }); c.Nodes[0].Limit != 16 {
		t.Errorf("%d after the trial failed", c.Nodes[0].Limit)
	}
	if drive(l, c, 8000, 64, false, func(int) int { return 32 }); c.Nodes[0].Limit != 32 || l.Learnt(0) != 0 {
		t.Errorf("memory is free again, but the limit is %d", c.Nodes[0].Limit)
	}
	// A share below the limit says nothing of it: a trial waits for one that does.
	c.Nodes[0].Limit = 32
	l = New(c)
	drive(l, c, 1, 64, false, func(int) int { return 20 })
	if drive(l, c, 500, 4, false, func(int) int { return 20 }); c.Nodes[0].Limit != 24 {
		t.Errorf("limit %d", c.Nodes[0].Limit)
	}
	if l.Settle(); c.Nodes[0].Limit != 4 {
		t.Errorf("settled at %d: only 4 are known to fit", c.Nodes[0].Limit)
	}
}

// A learnt limit below the least size: the node is out, and tried again rarely.
func TestOut(t *testing.T) {
	c := &cluster.Cluster{Nodes: []cluster.Node{{Limit: 32, Shapes: []int{8, 16, 32}}, {Limit: 4}}}
	l := New(c)
	both := []bool{true, true}
	if got := l.Mask(both); &got[0] != &both[0] {
		t.Error("nobody is out, but the mask is another")
	}
	fail := func(holds int) int {
		failures := 0
		for range 10 {
			r := cluster.Report{Nodes: make([]cluster.NodeReport, 2)}
			step := c.Nodes[0].Full()
			if !l.Out(0) {
				r.Nodes[0] = cluster.NodeReport{Status: cluster.In, Size: step}
				if step > holds {
					r.Nodes[0] = cluster.NodeReport{Status: cluster.Lost, OOM: true}
					failures++
				}
			}
			l.Observe(&r, []int{step, 0}, false)
		}
		return failures
	}
	if n := fail(5); n != 3 || !l.Out(0) || l.Out(1) || c.Nodes[0].Full() != 8 {
		t.Errorf("%d failures, out %v, limit %d", n, l.Out(0), c.Nodes[0].Limit)
	}
	if got := l.Mask(both); got[0] || !got[1] || !both[0] {
		t.Errorf("%v of %v", got, both)
	}
	tried := 0
	for range 2000 {
		tried += fail(5)
	}
	if tried < 2 || tried > 6 {
		t.Errorf("tried %d times in 20,000 rounds", tried)
	}
	for range 10_000 {
		fail(20)
	}
	if l.Out(0) || c.Nodes[0].Full() != 16 {
		t.Errorf("16 fit now; out %v, limit %d", l.Out(0), c.Nodes[0].Limit)
	}
}

// Whatever happens, limits stay between the least size and the given limit, and what a node
// without failures has stays as it is.
func TestBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := &cluster.Cluster{}
		for range 4 {
			n := cluster.Node{Limit: 1 + rng.IntN(40)}
			if rng.IntN(2) == 0 {
				n.Least = 1 + rng.IntN(n.Limit)
			} else if rng.IntN(2) == 0 {
				n.Shapes = []int{1 + rng.IntN(n.Limit)}
				n.Shapes = append(n.Shapes, n.Shapes[0]+1+rng.IntN(9))
			}
			c.Nodes = append(c.Nodes, n)
		}
		given := slices.Clone(c.Nodes)
		l := New(c)
		for range 400 {
			r, shares := cluster.Report{Nodes: make([]cluster.NodeReport, 4)}, make([]int, 4)
			for i := range r.Nodes {
				shares[i] = rng.IntN(60)
				r.Nodes[i] = cluster.NodeReport{Status: cluster.Status(rng.IntN(5)), Size: rng.IntN(60), Steps: rng.IntN(4), Behind: rng.IntN(2)}
				r.Nodes[i].OOM = i > 0 && r.Nodes[i].Status == cluster.Lost && rng.IntN(2) == 0
			}
			if l.Observe(&r, shares, rng.IntN(2) == 0); rng.IntN(50) == 0 {
				l.Settle()
			}
			for i := range c.Nodes {
				if n := &c.Nodes[i]; n.Limit > given[i].Limit || n.Full() < n.LeastShare() {
					t.Fatalf("limit %d of %+v", n.Limit, given[i])
				}
			}
		}
		if c.Nodes[0].Limit != given[0].Limit || l.Learnt(0) != 0 {
			t.Fatal("a limit moved without a failure")
		}
	}
}

// What did not fit counts as it was reported; reports of shares that were handed out before the
// limit fell change nothing.
func TestTooLarge(t *testing.T) {
	c := &cluster.Cluster{Nodes: []cluster.Node{{Name: "a", Limit: 64}}}
	l := New(c)
	out := func(size int) int {
		l.Observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.In, OOM: true, TooLarge: size}}}, []int{64}, false)
		return c.Nodes[0].Limit
	}
	for _, x := range []struct{ size, limit int }{{40, 20}, {40, 20}, {21, 20}, {20, 10}, {40, 10}} {
		if got := out(x.size); got != x.limit {
			t.Errorf("%d did not fit: limit %d, want %d", x.size, got, x.limit)
		}
	}
}

// The micro-step of a share of equal ones is smaller than a full one.
func TestEqualSteps(t *testing.T) {
	c := &cluster.Cluster{Nodes: []cluster.Node{{Name: "a", Limit: 64}}}
	c.SetEqualSteps(3)
	New(c).Observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.Lost, OOM: true}}}, []int{61}, false)
	if got := c.Nodes[0].Limit; got != 10 {
		t.Errorf("21 did not fit: limit %d", got)
	}
	c.Nodes[0].Limit = 64
	l := New(c)
	l.Bound(0, 2)
	if got := c.Nodes[0].Limit; got != 2 {
		t.Errorf("limit %d, below the least share", got)
	}
}

// Another start of a job knows the limits of the nodes that are in both.
func TestAdopt(t *testing.T) {
	old := &cluster.Cluster{Nodes: []cluster.Node{{Name: "a", Limit: 64}, {Name: "b", Limit: 64}}}
	l := New(old)
	for range 10 {
		l.Observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.In, OOM: true, TooLarge: 40}, {Status: cluster.In, Size: 50}}}, []int{64, 64}, false)
	}
	for _, x := range []struct{ given, from, limit, learnt int }{{64, 0, 20, 20}, {128, 0, 20, 20}, {32, 0, 20, 20}, {16, 0, 16, 0}, {64, 1, 64, 0}, {64, -1, 64, 0}} {
		c := &cluster.Cluster{Nodes: []cluster.Node{{Limit: x.given}}}
		next := New(c)
		next.Adopt(l, []int{x.from}, []int{old.Nodes[0].Limit, old.Nodes[1].Limit})
		if c.Nodes[0].Limit != x.limit || next.Learnt(0) != x.learnt {
			t.Errorf("%+v: limit %d, learnt %d", x, c.Nodes[0].Limit, next.Learnt(0))
		}
		if x.learnt > 0 { // it is raised again in time, as far as what did not fit, and up to what was given
			for range 3000 {
				next.Observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.In, Size: c.Nodes[0].Limit}}}, []int{c.Nodes[0].Limit}, false)
			}
			if c.Nodes[0].Limit <= 20 || c.Nodes[0].Limit > x.given {
				t.Errorf("%+v: limit %d in the end", x, c.Nodes[0].Limit)
			}
		}
	}
}

// A limit from Bound replaces the given one; a lower limit that was learnt stays.
func TestBound(t *testing.T) {
	c := &cluster.Cluster{Nodes: []cluster.Node{{Limit: 64, Least: 4}}}
	l := New(c)
	for _, x := range []struct{ bound, limit, learnt int }{{32, 32, 0}, {2, 4, 0}, {128, 128, 0}} {
		if l.Bound(0, x.bound); c.Nodes[0].Limit != x.limit || l.Learnt(0) != x.learnt {
			t.Errorf("%+v: %d, %d", x, c.Nodes[0].Limit, l.Learnt(0))
		}
	}
	l.Observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.In, OOM: true, TooLarge: 100}}}, []int{128}, false)
	for _, x := range []struct{ bound, limit, learnt int }{{200, 50, 50}, {20, 20, 0}} {
		if l.Bound(0, x.bound); c.Nodes[0].Limit != x.limit || l.Learnt(0) != x.learnt {
			t.Errorf("%+v: %d, %d", x, c.Nodes[0].Limit, l.Learnt(0))
		}
	}
}
