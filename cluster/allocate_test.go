package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/profile"
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
		switch rapid.IntRange(0, 5).Draw(t, "micro-batches") {
		case 0:
			node.Least = rapid.IntRange(1, 4).Draw(t, "least")
		case 1:
			node.Shapes = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.IntRange(1, 6), rapid.Just(true), 1, 3).Draw(t, "shapes")))
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

// takes is what the documentation of Node says of a micro-batch.
func (in *instance) takes(i, b int) bool {
	n := &in.cluster.Nodes[i]
	switch {
	case b < 1 || b > n.Limit:
		return false
	case n.Shapes != nil:
		return slices.Contains(n.Shapes, b)
	}
	return b >= n.Least
}

// full is the largest micro-batch that node i takes, up to what is well beyond the global
// batch and every least size and shape drawn; 0 if it takes none at all.
func (in *instance) full(i int) int {
	n := &in.cluster.Nodes[i]
	for b := min(n.Limit, 2*in.cluster.GlobalBatch+8); b > 0; b-- {
		if in.takes(i, b) {
			return b
		}
	}
	return 0
}

// makes says whether b samples are full micro-steps and at most one other.
func (in *instance) makes(i, b int) bool {
	full := in.full(i)
	return b == 0 || full > 0 && (b%full == 0 || in.takes(i, b%full))
}

// possible says whether every node that is there takes some micro-batch.
func (in *instance) possible() bool {
	some := false
	for i := range in.perf {
		if in.there(i) {
			if some = true; in.full(i) == 0 {
				return false
			}
		}
	}
	return some
}

// seconds is when node i has done b samples, micro-step by micro-step.
func (in *instance) seconds(i, b int) float64 {
	n, p, full := &in.cluster.Nodes[i], in.perf[i], in.full(i)
	s := 0.0
	for b > 0 {
		step := min(b, full)
		b -= step
		if n.Profile == nil {
			s += float64(step)
		} else {
			s += n.Profile.Seconds(float64(step)) / n.Profile.PerSample()
		}
	}
	return p.Overhead + p.PerSample*s
}

func (in *instance) finish(sizes []int) float64 {
	last := 0.0
	for i, b := range sizes {
		if b > 0 {
			last = max(last, in.seconds(i, b))
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
		for b := 0; b <= left; b++ {
			if sizes[i] = b; in.makes(i, b) && (b == 0 || in.there(i)) {
				try(i+1, left-b)
			}
		}
		sizes[i] = 0
	}
	if in.possible() {
		try(0, in.cluster.GlobalBatch)
	}
	return best, !math.IsInf(best, 1)
}

// greedy deals the samples one by one, as the documentation of Allocate says.
func (in *instance) greedy() []int {
	sizes := make([]int, len(in.perf))
	left := in.cluster.GlobalBatch
	for ; left > 0; left-- {
		best, soonest := -1, math.Inf(1)
		for i, b := range sizes {
			if in.there(i) {
				if t := in.seconds(i, b+1); t < soonest {
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
		case !in.makes(i, b):
			t.Fatalf("node %d got %d, limit %d, least %d, shapes %v", i, b, in.cluster.Nodes[i].Limit, in.cluster.Nodes[i].Least, in.cluster.Nodes[i].Shapes)
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
		if math.Abs(finish-in.finish(sizes)) > 1e-12*finish {
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
		for i := range in.cluster.Nodes { // samples are dealt one by one
			in.cluster.Nodes[i].Least, in.cluster.Nodes[i].Shapes = 0, nil
		}
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
				f := in.seconds(i, k)
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

// Curves and numbers for which a careless search does not end or overflows.
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
		{"one all but infinitely fast", MaxGlobalBatch, []Node{node(nil), node(nil)}, []Performance{{0, 1e-300}, {0, 1e300}}, []int{MaxGlobalBatch, 0}},
		{"finish times overflow", 100, []Node{node(nil), node(nil)}, []Performance{{0, math.MaxFloat64}, {0, 1}}, []int{0, 100}},
		{"one late start", 100, []Node{node(nil), node(nil)}, []Performance{{1e12, 1e-3}, {0, 1}}, []int{0, 100}},
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
		{func(c *Cluster, _ []bool, _ []Performance) { c.GlobalBatch = 9*MaxMicroSteps + 1 }, "cluster: the nodes cannot make up the global batch: 2 nodes make up 147456 samples at most, in 16384 micro-steps each; global_batch is 147457; lower it, or add nodes or memory"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.GlobalBatch = 0 }, "cluster: the nodes cannot make up the global batch: global_batch is 0; it must be at least 1"},
		{func(c *Cluster, _ []bool, _ []Performance) {
			c.Nodes[0].Shapes, c.Nodes[1].Shapes = []int{4}, []int{2, 4}
			c.GlobalBatch = 11
		}, "cluster: the nodes cannot make up the global batch: all micro-batches are multiples of 2, global_batch is 11"},
		{func(c *Cluster, _ []bool, _ []Performance) {
			c.Nodes[0].Shapes, c.Nodes[1].Shapes = []int{4}, []int{5}
			c.GlobalBatch = 11
		}, "cluster: the nodes cannot make up the global batch: the micro-batches that the nodes take do not sum to 11; change global_batch or micro_batch"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1].Least = 6 }, "cluster: the nodes cannot make up the global batch: node b (t4): its smallest micro-batch is 6, but its memory holds 5"},
		{func(_ *Cluster, p []bool, _ []Performance) { clear(p) }, "cluster: the nodes cannot make up the global batch: no node takes part"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1].Limit = 0 }, "cluster: the nodes cannot make up the global batch: node b (t4): Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1] = Node{Name: "x"} }, "cluster: the nodes cannot make up the global batch: node x: Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
		{func(c *Cluster, _ []bool, _ []Performance) { c.Nodes[1] = Node{} }, "cluster: the nodes cannot make up the global batch: node 1: Limit is 0; set it to the largest micro-batch its memory holds, or profile.NoLimit"},
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
		a.Uniform(&Cluster{GlobalBatch: 11, Nodes: []Node{{Limit: 4, Shapes: []int{4}}, {Limit: 5, Shapes: []int{5}}}}, nil, sizes),
	} {
		if err == nil {
			t.Error("accepted")
		}
	}
}
