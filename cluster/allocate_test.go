package cluster

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/cluster/profile"
)

// problem of allocation: a cluster, who is there, and what is believed of them.
type instance struct {
	cluster *Cluster
	present []bool
	perf    []Performance
}

func drawProfile(t *rapid.T) *profile.Profile {
	if rapid.Bool().Draw(t, "unprofiled") {
		return nil
	}
	// Few distinct times, so that plateaus and ties are common; falling ones are smoothed to more.
	var points []profile.Point
	for b, n := 0, rapid.IntRange(1, 6).Draw(t, "points"); len(points) < n; {
		b += rapid.IntRange(1, 3).Draw(t, "gap")
		points = append(points, profile.Point{MicroBatch: b, Seconds: 0.25 * float64(rapid.IntRange(1, 8).Draw(t, "quarters"))})
	}
	p, err := profile.New("d", "w", points, "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drawInstance(t *rapid.T, maxNodes, maxBatch int) instance {
	n := rapid.IntRange(1, maxNodes).Draw(t, "nodes")
	in := instance{cluster: &Cluster{Workload: "w", GlobalBatch: rapid.IntRange(1, maxBatch).Draw(t, "batch")}}
	if rapid.Bool().Draw(t, "absences") {
		in.present = make([]bool, n)
	}
	for i := range n {
		node := Node{Name: fmt.Sprint(i), Device: "d", Profile: drawProfile(t), Limit: profile.NoLimit}
		if rapid.Bool().Draw(t, "limited") {
			node.Limit = rapid.IntRange(0, maxBatch).Draw(t, "limit")
		}
		in.cluster.Nodes = append(in.cluster.Nodes, node)
		p := Performance{PerSample: rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 1, 1e-9, 1e9}).Draw(t, "per sample")}
		if rapid.Bool().Draw(t, "odd") {
			p = Performance{rapid.Float64Range(0, 3).Draw(t, "overhead"), rapid.Float64Range(0.01, 3).Draw(t, "odd per sample")}
		}
		in.perf = append(in.perf, p)
		if in.present != nil {
			in.present[i] = rapid.IntRange(0, 3).Draw(t, "there") > 0
		}
	}
	return in
}

func (in *instance) there(i int) bool { return in.present == nil || in.present[i] }

func (in *instance) finish(sizes []int) float64 {
	last := 0.0
	for i, b := range sizes {
		if in.there(i) {
			last = max(last, in.cluster.Nodes[i].Finish(in.perf[i], b))
		}
	}
	return last
}

// brute tries every allocation: the smallest latest finish time, false if none is allowed.
func (in *instance) brute() (float64, bool) {
	best, sizes := math.Inf(1), make([]int, len(in.perf))
	var try func(i, left int)
	try = func(i, left int) {
		if i == len(sizes) {
			if left == 0 && slices.Max(sizes) > 0 {
				best = min(best, in.finish(sizes))
			}
			return
		}
		sizes[i] = 0
		if !in.there(i) {
			try(i+1, left)
			return
		}
		for b := 1; b <= min(left, in.cluster.Nodes[i].Limit); b++ {
			sizes[i] = b
			try(i+1, left-b)
		}
		sizes[i] = 0
	}
	try(0, in.cluster.GlobalBatch)
	return best, !math.IsInf(best, 1)
}

// greedy deals the samples one by one, as the documentation of Allocate says.
func (in *instance) greedy() []int {
	sizes := make([]int, len(in.perf))
	left := in.cluster.GlobalBatch
	for i := range sizes {
		if in.there(i) {
			sizes[i], left = 1, left-1
		}
	}
	for ; left > 0; left-- {
		best, soonest := -1, math.Inf(1)
		for i, b := range sizes {
			if in.there(i) && b < in.cluster.Nodes[i].Limit {
				if t := in.cluster.Nodes[i].Finish(in.perf[i], b+1); t < soonest {
					best, soonest = i, t
				}
			}
		}
		sizes[best]++
	}
	return sizes
}

func (in *instance) check(t *rapid.T, sizes []int) {
	sum := 0
	for i, b := range sizes {
		sum += b
		switch {
		case !in.there(i) && b != 0:
			t.Fatalf("absent node %d got %d", i, b)
		case in.there(i) && (b < 1 || b > in.cluster.Nodes[i].Limit):
			t.Fatalf("node %d got %d, limit %d", i, b, in.cluster.Nodes[i].Limit)
		}
	}
	if sum != in.cluster.GlobalBatch {
		t.Fatalf("%v sums to %d, want %d", sizes, sum, in.cluster.GlobalBatch)
	}
}

func TestAllocateBrute(t *testing.T) {
	var a Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 4, 12)
		sizes := make([]int, len(in.perf))
		finish, err := a.Allocate(in.cluster, in.present, in.perf, sizes)
		best, possible := in.brute()
		if !possible {
			if !errors.Is(err, ErrCapacity) {
				t.Fatalf("impossible, but %v, %v", sizes, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		in.check(t, sizes)
		if finish != in.finish(sizes) {
			t.Fatalf("returned %v, sizes finish at %v", finish, in.finish(sizes))
		}
		if finish > best*(1+1e-12) {
			t.Fatalf("%v finish at %v, possible is %v", sizes, finish, best)
		}
	})
}

func TestAllocateGreedy(t *testing.T) {
	var a Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 40, 2000)
		sizes := make([]int, len(in.perf))
		if _, err := a.Allocate(in.cluster, in.present, in.perf, sizes); errors.Is(err, ErrCapacity) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		in.check(t, sizes)
		want := in.greedy()
		// They may part only over samples that finish at the same moment but for rounding.
		at := math.NaN()
		for i, b := range sizes {
			if b == want[i] {
				continue
			}
			for k := min(b, want[i]) + 1; k <= max(b, want[i]); k++ {
				f := in.cluster.Nodes[i].Finish(in.perf[i], k)
				if math.IsNaN(at) {
					at = f
				}
				if math.Abs(f-at) > 1e-12*at {
					t.Fatalf("got %v, want %v: sample %d of node %d finishes at %v, not %v", sizes, want, k, i, f, at)
				}
			}
		}
	})
}

// Curves and numbers that would make a careless search run for ever or overflow.
func TestAllocateExtremes(t *testing.T) {
	flat, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}, {MicroBatch: 1_000_000, Seconds: 1}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	node := func(p *profile.Profile) Node { return Node{Name: "n", Profile: p, Limit: profile.NoLimit} }
	for _, c := range []struct {
		name  string
		batch int
		nodes []Node
		perf  []Performance
		want  []int
	}{
		{"two on a plateau", 1_500_000, []Node{node(flat), node(flat)}, []Performance{{0, 1}, {0, 1}}, []int{1_000_000, 500_000}},
		{"a huge batch", MaxGlobalBatch, []Node{node(nil), node(nil)}, []Performance{{0, 1}, {0, 3}}, []int{3 << 28, 1 << 28}},
		{"one all but infinitely fast", MaxGlobalBatch, []Node{node(nil), node(nil)}, []Performance{{0, 1e-300}, {0, 1e300}}, []int{MaxGlobalBatch - 1, 1}},
		{"finish times overflow", 100, []Node{node(nil), node(nil)}, []Performance{{0, math.MaxFloat64}, {0, 1}}, []int{1, 99}},
		{"one late start", 100, []Node{node(nil), node(nil)}, []Performance{{1e12, 1e-3}, {0, 1}}, []int{1, 99}},
		{"subnormal", 100, []Node{node(nil), node(nil)}, []Performance{{0, 5e-324}, {0, 5e-324}}, []int{50, 50}},
	} {
		sizes := make([]int, 2)
		if _, err := Allocate(&Cluster{GlobalBatch: c.batch, Nodes: c.nodes}, nil, c.perf, sizes); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !slices.Equal(sizes, c.want) {
			t.Errorf("%s: %v, want %v", c.name, sizes, c.want)
		}
	}
}

func TestAllocateErrors(t *testing.T) {
	c := &Cluster{Workload: "w", GlobalBatch: 10, Nodes: []Node{{Name: "a", Device: "t4", Limit: 4}, {Name: "b", Device: "t4", Limit: 5}}}
	perf, sizes := []Performance{{0, 1}, {0, 1}}, []int{0, 0}
	for _, k := range []struct {
		change func(c *Cluster, present []bool, perf []Performance)
		want   string
	}{
		{func(*Cluster, []bool, []Performance) {}, "cluster: the nodes cannot hold the global batch: the memory limits of 2 nodes hold 9 samples together, global_batch is 10; lower it, or add nodes or memory"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.GlobalBatch = 1 }, "cluster: the nodes cannot hold the global batch: 2 nodes need at least one sample each, global_batch is 1"},
		{func(_ *Cluster, p []bool, _ []Performance) { clear(p) }, "cluster: the nodes cannot hold the global batch: no node takes part"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1].Limit = 0 }, "cluster: the nodes cannot hold the global batch: node b (t4): Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1] = Node{Name: "x"} }, "cluster: the nodes cannot hold the global batch: node x: Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1] = Node{} }, "cluster: the nodes cannot hold the global batch: node 1: Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
		{func(c *Cluster, _ []bool, p []Performance) { c.GlobalBatch, p[1].PerSample = 9, math.NaN() }, "cluster: node b (t4): performance parameters {Overhead:0 PerSample:NaN} must be finite, Overhead at least 0 and PerSample above 0"},
		{func(c *Cluster, _ []bool, p []Performance) { c.GlobalBatch, p[0].PerSample = 9, 0 }, "cluster: node a (t4): performance parameters {Overhead:0 PerSample:0} must be finite, Overhead at least 0 and PerSample above 0"},
		{func(c *Cluster, _ []bool, p []Performance) { c.GlobalBatch, p[0].Overhead = 9, -1 }, "cluster: node a (t4): performance parameters {Overhead:-1 PerSample:1} must be finite, Overhead at least 0 and PerSample above 0"},
		{func(c *Cluster, _ []bool, p []Performance) { c.GlobalBatch, p[0].Overhead = 9, math.Inf(1) }, "cluster: node a (t4): performance parameters {Overhead:+Inf PerSample:1} must be finite, Overhead at least 0 and PerSample above 0"},
	} {
		d, p, present := *c, slices.Clone(perf), []bool{true, true}
		d.Nodes = slices.Clone(c.Nodes)
		k.change(&d, present, p)
		if _, err := Allocate(&d, present, p, sizes); err == nil || err.Error() != k.want {
			t.Errorf("got  %v\nwant %s", err, k.want)
		}
	}
	if _, err := Allocate(c, nil, perf[:1], sizes); err == nil || err.Error() != "cluster: 2 nodes, but 1 performance parameters and 2 sizes" {
		t.Error(err)
	}
	var a Allocator
	for _, err := range []error{
		a.Uniform(c, nil, sizes[:1]),
		a.Uniform(c, []bool{true}, sizes),
		a.Proportional(c, nil, []float64{1}, sizes),
		a.Uniform(c, nil, sizes),
	} {
		if err == nil {
			t.Error("accepted")
		}
	}
}
