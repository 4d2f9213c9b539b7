package agent

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// named is a cluster of nodes without profiles.
func named(batch int, names ...string) *cluster.Cluster {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: batch}
	for _, n := range names {
		c.Nodes = append(c.Nodes, cluster.Node{Name: n, Device: "d", Limit: batch})
	}
	return c
}

// learnt is a control that has seen rounds in which nodes a, b and c take 1, 2 and 4 ms per sample.
func learnt(t *testing.T, c *cluster.Cluster) *Control {
	t.Helper()
	pace := map[string]float64{"a": 0.001, "b": 0.002, "c": 0.004}
	ctl := &Control{Cluster: c, Policy: NewModel(c)}
	var r *cluster.Report
	for range 20 {
		plan, err := ctl.Next(r, slices.Repeat([]bool{true}, len(c.Nodes)))
		if err != nil {
			t.Fatal(err)
		}
		seconds := make([]float64, len(c.Nodes))
		for i, b := range plan.Sizes {
			seconds[i] = pace[c.Nodes[i].Name] * float64(b)
		}
		r = agenttest.Measured(plan.Sizes, seconds...)
	}
	return ctl
}

// Knowledge about a node is kept by its name, whatever its place. A new node counts as the mean of the
// others.
func TestAdopt(t *testing.T) {
	old := learnt(t, named(70, "a", "b", "c"))
	for name, x := range map[string]struct {
		nodes  []string
		change func(*cluster.Cluster)
	}{
		"all":              {[]string{"a", "b", "c"}, func(*cluster.Cluster) {}},
		"in another order": {[]string{"c", "a", "b"}, func(*cluster.Cluster) {}},
		"one is gone":      {[]string{"c", "b"}, func(*cluster.Cluster) {}},
		"one is new":       {[]string{"a", "b", "new"}, func(*cluster.Cluster) {}},
		"another device":   {[]string{"a", "b", "c"}, func(c *cluster.Cluster) { c.Nodes[2].Device = "e" }},
	} {
		c := named(70, x.nodes...)
		x.change(c)
		ctl := &Control{Cluster: c, Policy: NewModel(c)}
		ctl.Adopt(old.Beliefs())
		plan, err := ctl.Next(nil, slices.Repeat([]bool{true}, len(c.Nodes)))
		if err != nil {
			t.Fatal(err)
		}
		pace, sum := map[string]float64{"a": 0.001, "b": 0.002, "c": 0.004, "new": 0.0015}, 0.0
		if c.Nodes[len(c.Nodes)-1].Device == "e" {
			pace["c"] = 0.0015
		}
		for _, n := range x.nodes {
			sum += 1 / pace[n]
		}
		for i, n := range x.nodes {
			// At sizes that nobody had so far, how much of a node's time is overhead is known roughly.
			if want := 70 / pace[n] / sum; math.Abs(float64(plan.Sizes[i])-want) > 0.15*want {
				t.Errorf("%s: %v; %s has %d, want %.1f", name, plan.Sizes, n, plan.Sizes[i], want)
			}
		}
	}
}

// Profiles are compared by their points: those of a log are other objects than the catalogue's.
func TestAdoptByProfile(t *testing.T) {
	old := agenttest.Lines(t, 40, 0.1, 0.1)
	ctl := &Control{Cluster: old, Policy: NewModel(old)}
	var r *cluster.Report
	for range 20 {
		plan, err := ctl.Next(r, []bool{true, true})
		if err != nil {
			t.Fatal(err)
		}
		r = agenttest.Measured(plan.Sizes, 0.5+0.1*float64(plan.Sizes[0]), 3*(0.5+0.1*float64(plan.Sizes[1])))
	}
	for name, x := range map[string]struct {
		per   float64
		known bool
	}{"the same": {0.1, true}, "another": {0.2, false}} {
		c := agenttest.Lines(t, 40, x.per, x.per)
		next := &Control{Cluster: c, Policy: NewModel(c)}
		next.Adopt(ctl.Beliefs())
		plan, err := next.Next(nil, []bool{true, true})
		if err != nil {
			t.Fatal(err)
		}
		if known := plan.Sizes[0] > 25; known != x.known {
			t.Errorf("%s profile: %v", name, plan.Sizes)
		}
	}
}

// Limits that were learnt and the factor of an automatic deadline stay; a control that has not begun has nothing to give.
func TestAdoptLimits(t *testing.T) {
	old := named(70, "a", "b")
	old.Collect.AutoDeadline = true
	ctl := learnt(t, old)
	r := agenttest.Measured([]int{42, 35}, 1, 1)
	r.Nodes[1].OOM, r.Nodes[1].TooLarge = true, 32
	if _, err := ctl.Next(r, []bool{true, true}); err != nil {
		t.Fatal(err)
	}
	c := named(70, "b", "a")
	c.Collect.AutoDeadline = true
	next := &Control{Cluster: c, Policy: NewModel(c)}
	next.Adopt((&Control{Cluster: old, Policy: NewModel(old)}).Beliefs())
	next.Adopt(ctl.Beliefs())
	if _, err := next.Next(nil, []bool{true, true}); err != nil {
		t.Fatal(err)
	}
	if c.Nodes[0].Limit != 16 || c.Nodes[1].Limit != 70 || next.memory.Learnt(0) != 16 || next.memory.Learnt(1) != 0 {
		t.Errorf("limits %d and %d, want 16 and 70", c.Nodes[0].Limit, c.Nodes[1].Limit)
	}
	// A limit on trial is not passed on.
	for k := 0; old.Nodes[1].Limit == 16; k++ {
		plan, err := ctl.Next(agenttest.Measured([]int{54, 16}, 1, 1), []bool{true, true})
		if err != nil || k > 1000 {
			t.Fatal(plan, err)
		}
	}
	if b := ctl.Beliefs(); b.nodes[1].limit != 16 {
		t.Errorf("limit %d, want 16", b.nodes[1].limit)
	}
	if got := next.deadline.factor; got != ctl.deadline.factor || got == 1 || got == 0 {
		t.Errorf("factor %v, was %v", got, ctl.deadline.factor)
	}
}

// Work under way when the job ended does not count in the next start, and a start without measurements passes
// on nothing.
func TestAdoptForgetsWork(t *testing.T) {
	first := func(old *Control) []int {
		c := named(70, "a", "b", "c")
		next := &Control{Cluster: c, Policy: NewModel(c)}
		if old != nil {
			next.Adopt(old.Beliefs())
		}
		plan, err := next.Next(nil, []bool{true, true, true})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(plan.Sizes)
	}
	busy := learnt(t, named(70, "a", "b", "c"))
	r := agenttest.Measured([]int{40, 20, 0}, 0.04, 0.04, 0)
	r.Nodes[2] = cluster.NodeReport{Status: cluster.Late, Size: 20, BusySize: 20, Busy: 0.001, Seconds: 0.001}
	if _, err := busy.Next(r, []bool{true, true, true}); err != nil {
		t.Fatal(err)
	}
	if got, want := first(busy), first(learnt(t, named(70, "a", "b", "c"))); math.Abs(float64(got[2]-want[2])) > 1 {
		t.Errorf("after work under way %v, without it %v", got, want)
	}
	c := named(70, "a", "b")
	fresh := &Control{Cluster: c, Policy: NewModel(c)}
	if _, err := fresh.Next(nil, []bool{true, true}); err != nil {
		t.Fatal(err)
	}
	if got, want := first(fresh), first(nil); !slices.Equal(got, want) {
		t.Errorf("of nothing measured %v, want %v", got, want)
	}
}

// What was learnt about a node outlives starts without it, and the process by its bytes.
func TestAdoptAfterAbsence(t *testing.T) {
	start := func(b *Beliefs, names ...string) (*Control, []int) {
		c := named(70, names...)
		ctl := &Control{Cluster: c, Policy: embeddedPolicy(t).NewAgent(c, agenttest.Speed)}
		ctl.Adopt(b)
		plan, err := ctl.Next(nil, slices.Repeat([]bool{true}, len(c.Nodes)))
		if err != nil {
			t.Fatal(err)
		}
		return ctl, slices.Clone(plan.Sizes)
	}
	old := learnt(t, named(70, "a", "b", "c"))
	r := agenttest.Measured([]int{40, 20, 10}, 0.04, 0.04, 0.04)
	r.Nodes[2].OOM, r.Nodes[2].TooLarge = true, 16
	if _, err := old.Next(r, []bool{true, true, true}); err != nil {
		t.Fatal(err)
	}
	_, want := start(old.Beliefs(), "b", "c")
	without, _ := start(old.Beliefs(), "a", "b")
	without, _ = start(without.Beliefs(), "a", "new")
	b := without.Beliefs()
	bytes, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeBeliefs(bytes)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*Beliefs{"kept": b, "read": read} {
		again, got := start(b, "b", "c")
		if !slices.Equal(got, want) || again.Cluster.Nodes[1].Limit != 8 || again.memory.Learnt(1) != 8 {
			t.Errorf("%s: %v, want %v; limit %d", name, got, want, again.Cluster.Nodes[1].Limit)
		}
	}
	if _, err := DecodeBeliefs(bytes[:len(bytes)-1]); err == nil {
		t.Error("damaged beliefs were read")
	}
}

// Of the nodes that are away, as many are kept as there are others, or 64: those that were there last.
func TestAwayIsBounded(t *testing.T) {
	var b *Beliefs
	for k := range 150 {
		c := named(70, fmt.Sprint("n", k))
		ctl := &Control{Cluster: c, Policy: NewModel(c)}
		ctl.Adopt(b)
		if _, err := ctl.Next(nil, []bool{true}); err != nil {
			t.Fatal(err)
		}
		b = ctl.Beliefs()
	}
	if n := len(b.nodes); n != 1+mostAway || b.nodes[0].name != "n149" || b.nodes[n-1].name != "n85" {
		t.Errorf("%d nodes, from %s to %s", n, b.nodes[0].name, b.nodes[n-1].name)
	}
}
