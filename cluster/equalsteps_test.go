package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// equalParts cuts b samples into k micro-steps by rounding; nil: node i does not take them.
func (in *instance) equalParts(i, b, k int) []int {
	var parts []int
	for j := range k {
		parts = append(parts, b*(j+1)/k-b*j/k)
		if !in.takes(i, parts[j]) {
			return nil
		}
	}
	return parts
}

// equalSeconds is when node i has done b samples in k micro-steps; infinite if it does not take them.
func (in *instance) equalSeconds(i, b, k int) float64 {
	if b == 0 {
		return 0
	}
	parts, cost := in.equalParts(i, b, k), 0.0
	if parts == nil {
		return math.Inf(1)
	}
	for _, part := range parts {
		if p := in.cluster.Nodes[i].Profile; p != nil {
			cost += p.Seconds(float64(part)) / p.PerSample()
		} else {
			cost += float64(part)
		}
	}
	return in.perf[i].Overhead + in.perf[i].PerSample*cost
}

// equalBrute tries every allocation in k micro-steps.
func (in *instance) equalBrute(k int) float64 {
	best := math.Inf(1)
	var try func(i, left int, latest float64)
	try = func(i, left int, latest float64) {
		if i == len(in.perf) {
			if left == 0 {
				best = min(best, latest)
			}
			return
		}
		for b := 0; b <= left && (b == 0 || in.there(i)); b++ {
			if at := in.equalSeconds(i, b, k); at < best {
				try(i+1, left-b, max(latest, at))
			}
		}
	}
	try(0, in.cluster.GlobalBatch, 0)
	return best
}

// equalCheck compares shares in k micro-steps, said to take finish seconds, with the best.
func (in *instance) equalCheck(t *rapid.T, sizes []int, k int, finish, want float64) {
	sum, latest := 0, 0.0
	for i, b := range sizes {
		sum += b
		latest = max(latest, in.equalSeconds(i, b, k))
		parts, n := in.equalParts(i, b, k), &in.cluster.Nodes[i]
		if b > 0 && (!in.there(i) || !n.Takes(b) || n.Steps(b) != k || n.MicroBatch(b) != slices.Max(parts)) {
			t.Fatalf("node %d: %d in %v", i, b, parts)
		}
	}
	if sum != in.cluster.GlobalBatch || math.Abs(latest-finish) > 1e-12*finish || math.Abs(finish-want) > 1e-9*want {
		t.Fatalf("%v in %d steps: %v (really %v), the best is %v", sizes, k, finish, latest, want)
	}
}

// Nodes are left out, too, and may take certain sizes only.
func TestAllocateEqualBrute(t *testing.T) {
	var a Allocator
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 4, 14)
		steps := rapid.IntRange(1, 5).Draw(t, "steps")
		in.cluster.SetEqualSteps(steps)
		sizes := make([]int, len(in.perf))
		finish, err := a.Allocate(in.cluster, in.present, in.perf, sizes)
		want := in.equalBrute(steps)
		if err != nil {
			if in.possible() && !math.IsInf(want, 1) {
				t.Fatalf("%v, though %v is possible", err, want)
			}
			return
		}
		found++
		in.equalCheck(t, sizes, steps, finish, want)
		if err := a.Uniform(in.cluster, in.present, sizes); err != nil {
			t.Fatal(err)
		}
		latest := 0.0
		for i, b := range sizes {
			latest = max(latest, in.equalSeconds(i, b, steps))
		}
		in.equalCheck(t, sizes, steps, latest, latest)
	})
	if found == 0 {
		t.Fatal("no instance was possible")
	}
}

func TestBestEqualStepsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 4, 14)
		in.present = nil
		want := math.Inf(1)
		for k := 1; k <= in.cluster.GlobalBatch; k++ {
			want = min(want, in.equalBrute(k))
		}
		steps, err := BestEqualSteps(in.cluster, in.perf)
		if err != nil {
			if in.possible() && !math.IsInf(want, 1) {
				t.Fatalf("%v, though %v is possible", err, want)
			}
			return
		}
		if in.cluster.EqualSteps() != 0 {
			t.Fatal("the cluster was changed")
		}
		in.cluster.SetEqualSteps(steps)
		sizes := make([]int, len(in.perf))
		finish, err := Allocate(in.cluster, nil, in.perf, sizes)
		if err != nil {
			t.Fatal(err)
		}
		in.equalCheck(t, sizes, steps, finish, want)
	})
}

// The largest share within a cost is that of a search.
func TestEqualWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 1, 40)
		in.cluster.SetEqualSteps(rapid.IntRange(1, 5).Draw(t, "steps"))
		n, most := &in.cluster.Nodes[0], 0
		if n.Full() > 0 {
			most = n.MostShare(in.cluster.GlobalBatch)
		}
		w, want := n.Cost(rapid.IntRange(0, 50).Draw(t, "samples"))*1.001, 0
		for b := range most + 1 {
			if n.Takes(b) && n.Cost(b) <= w*(1-1e-6) { // up to rounding
				want = b
			}
		}
		if got := n.within(w, most); got < want || got > most || !n.Takes(got) || n.Cost(got) > w*(1+1e-6) {
			t.Fatalf("%d samples, want %d of at most %d", got, want, most)
		}
	})
}

// Where the number of micro-steps is large, nodes leave room for one another, or are left out.
func TestManyEqualSteps(t *testing.T) {
	const steps, least = MaxMicroSteps, 100
	c := &Cluster{GlobalBatch: 4*steps*least + 1000}
	perf := []Performance{{PerSample: 1}, {PerSample: 1}, {PerSample: 1}, {PerSample: 1.2}}
	for range perf {
		c.Nodes = append(c.Nodes, Node{Least: least, Limit: 1000})
	}
	c.SetEqualSteps(steps)
	if at, err := Allocate(c, nil, perf, make([]int, 4)); err != nil || at != 1.2*steps*least {
		t.Errorf("%v, %v: all four have room", at, err)
	}
	c, perf = &Cluster{GlobalBatch: 1500}, nil
	for i := range 1000 {
		c.Nodes, perf = append(c.Nodes, Node{Limit: 2}), append(perf, Performance{PerSample: 1 + float64((i+500)%1000)/1e4})
	}
	c.SetEqualSteps(1000)
	if at, err := Allocate(c, nil, perf, make([]int, 1000)); err != nil || at != 1500 {
		t.Errorf("%v, %v: one node has room", at, err)
	}
	c = &Cluster{GlobalBatch: 9, Nodes: []Node{{Limit: 5, Shapes: []int{4, 5}}}}
	c.SetEqualSteps(2)
	if err := c.MakesUp(); err != nil {
		t.Errorf("4 and 5: %v", err)
	}
	c = &Cluster{GlobalBatch: 100_000, Nodes: []Node{{Limit: 1}}}
	c.SetEqualSteps(3)
	if got := c.Nodes[0].MostShare(c.GlobalBatch); got != 3 {
		t.Errorf("%d samples in 3 micro-steps of one", got)
	}
}

// Nodes whose smallest micro-batches differ, and that cannot all take part: dealing to the ones with most samples first is not enough.
func TestKeepMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + r.IntN(7)
		nodes, shares, kept := make([]Node, n), make([]int, n), make([]bool, n)
		for i := range n {
			nodes[i].Least, shares[i] = 1+r.IntN(5), r.IntN(20)
		}
		most, best := r.IntN(12), 0
		for set := range 1 << n {
			sum, least := 0, 0
			for i := range n {
				if set>>i&1 == 1 && shares[i] > 0 {
					sum, least = sum+shares[i], least+nodes[i].Least
				}
			}
			if least <= most {
				best = max(best, sum)
			}
		}
		got, sum, least := keepMost(nodes, shares, most, kept), 0, 0
		for i, b := range shares {
			if kept[i] {
				sum, least = sum+b, least+nodes[i].Least
			}
		}
		if got != best || sum != best || least > most {
			t.Fatalf("%v of %v: %d (%d), %d of %d; the best is %d", kept, shares, got, sum, least, most, best)
		}
	}
}

// Where all take the smallest micro-batches, or the choice is very large, those with most samples stay.
func TestKeepMostMany(t *testing.T) {
	r, nodes, most := rand.New(rand.NewPCG(1, 2)), 6000, 3000
	shares := make([]int, nodes)
	for i := range nodes - 1 {
		shares[i] = r.IntN(1000)
	}
	sorted, want := slices.Sorted(slices.Values(shares)), 0
	for _, b := range sorted[nodes-most:] {
		want += b
	}
	for _, last := range []Node{{}, {Least: most + 1}} { // the second never fits
		all := slices.Concat(make([]Node, nodes-1), []Node{last})
		if got := keepMost(all, shares, most, make([]bool, nodes)); got != want {
			t.Errorf("%d samples, want %d", got, want)
		}
	}
}
