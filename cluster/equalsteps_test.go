package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/profile"
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

// equalBrute tries every number of micro-steps and every allocation.
func (in *instance) equalBrute() float64 {
	best := math.Inf(1)
	for k := 1; k <= in.cluster.GlobalBatch; k++ {
		var try func(i, left int, latest float64)
		try = func(i, left int, latest float64) {
			if i == len(in.perf) {
				if left == 0 {
					best = min(best, latest)
				}
				return
			}
			for b := 0; b <= left; b++ {
				if at := in.equalSeconds(i, b, k); at < best {
					try(i+1, left-b, max(latest, at))
				}
			}
		}
		try(0, in.cluster.GlobalBatch, 0)
	}
	return best
}

func TestAllocateEqualBrute(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 4, 14)
		in.present = nil
		for i := range in.cluster.Nodes {
			in.cluster.Nodes[i].Shapes = nil
		}
		sizes := make([]int, len(in.perf))
		finish, steps, err := AllocateEqual(in.cluster, in.perf, sizes)
		want := in.equalBrute()
		if err != nil {
			if in.possible() && !math.IsInf(want, 1) {
				t.Fatalf("%v, though %v is possible", err, want)
			}
			return
		}
		found++
		sum, latest := 0, 0.0
		for i, b := range sizes {
			sum += b
			latest = max(latest, in.equalSeconds(i, b, steps))
		}
		if sum != in.cluster.GlobalBatch || math.Abs(latest-finish) > 1e-12*finish || math.Abs(finish-want) > 1e-9*want {
			t.Fatalf("%v in %d steps: %v (really %v), the best is %v", sizes, steps, finish, latest, want)
		}
	})
	if found == 0 {
		t.Fatal("no instance was possible")
	}
}

// What nodes with fixed sizes get is allowed, and takes no less than the best.
func TestAllocateEqualShapes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 4, 14)
		in.present = nil
		sizes := make([]int, len(in.perf))
		finish, steps, err := AllocateEqual(in.cluster, in.perf, sizes)
		if err != nil {
			return
		}
		sum, latest := 0, 0.0
		for i, b := range sizes {
			sum += b
			latest = max(latest, in.equalSeconds(i, b, steps))
		}
		if want := in.equalBrute(); sum != in.cluster.GlobalBatch || math.Abs(latest-finish) > 1e-12*finish || finish < want*(1-1e-9) {
			t.Fatalf("%v in %d steps: %v (really %v), the best is %v", sizes, steps, finish, latest, want)
		}
	})
}

// Nodes whose smallest micro-batches differ, and that cannot all take part: dealing to the ones with most samples first is not enough.
func TestLeaveOut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + r.IntN(7)
		e := equalSteps{c: &Cluster{}, steps: 1}
		for range n {
			e.c.Nodes = append(e.c.Nodes, Node{Least: 1 + r.IntN(5), Limit: profile.NoLimit})
			e.trial = append(e.trial, r.IntN(20))
		}
		shares, most, best := slices.Clone(e.trial), r.IntN(12), 0
		for set := range 1 << n {
			sum, least := 0, 0
			for i := range n {
				if set>>i&1 == 1 && shares[i] > 0 {
					sum, least = sum+shares[i], least+e.c.Nodes[i].Least
				}
			}
			if least <= most {
				best = max(best, sum)
			}
		}
		got, sum, least := e.leaveOut(most), 0, 0
		for i, b := range e.trial {
			if b > 0 {
				sum, least = sum+b, least+e.c.Nodes[i].Least
			}
			if b != 0 && b != shares[i] {
				t.Fatalf("share %d became %d", shares[i], b)
			}
		}
		if got != best || sum != best || least > most {
			t.Fatalf("%v of %v: %d (%d), %d of %d; the best is %d", e.trial, shares, got, sum, least, most, best)
		}
	}
}

// A very large choice keeps the nodes with most samples.
func TestLeaveOutMany(t *testing.T) {
	r, nodes, most := rand.New(rand.NewPCG(1, 2)), 6000, 3000
	e := equalSteps{c: &Cluster{Nodes: make([]Node, nodes)}, steps: 1}
	for range nodes {
		e.trial = append(e.trial, r.IntN(1000))
	}
	sorted, want := slices.Sorted(slices.Values(e.trial)), 0
	for _, b := range sorted[nodes-most:] {
		want += b
	}
	if got := e.leaveOut(most); got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}
