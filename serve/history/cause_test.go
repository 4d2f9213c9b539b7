package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster"
)

// node is what a node takes, in a test.
type node struct{ compute, input, link float64 } // seconds a sample, of a message

// blamed is what is said of nodes after rounds of a job in which they take so much, with noise. change, if not nil, is called before each round.
func blamed(t *testing.T, devices string, rounds int, exchange, noise float64, nodes []node, change func(round int)) []Cause {
	t.Helper()
	c := &cluster.Cluster{Workload: "unnamed", GlobalBatch: 16 * len(nodes)}
	perf := make([]cluster.Performance, len(nodes))
	for i := range nodes {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i), Device: devices[i : i+1], Limit: c.GlobalBatch})
		perf[i] = cluster.Performance{PerSample: 1}
	}
	h := new(History)
	h.Start(0, 1, c)
	rng := rand.New(rand.NewPCG(1, 2))
	for k := range rounds {
		if change != nil {
			change(k)
		}
		r, slowest := &cluster.Report{Round: k, Nodes: make([]cluster.NodeReport, len(nodes))}, 0.0
		for i, n := range nodes {
			size := 8 + 8*((i+k)%3)
			took := float64(size) * (n.compute + n.input) * max(1+noise*rng.NormFloat64(), 0.1)
			r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: size, Samples: size, Seconds: took, Input: took * n.input / (n.compute + n.input)}
			if k%5 == 0 {
				r.Nodes[i].Link = n.link * max(1+3*rng.NormFloat64(), 1)
			}
			slowest = max(slowest, took)
		}
		r.Wait = time.Duration(slowest / (1 - exchange) * 1e9)
		h.Took(time.Duration(k)*time.Minute, r, perf, 0)
		if rounds > 50 && k%50 == 0 { // as a service that starts again knows it
			kept, err := h.Keep()
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Recall(kept, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	causes := h.View(0).Nodes.Cause
	for i := range nodes {
		cause, text := h.Cause(i)
		if cause != causes[i] || !strings.HasPrefix(strings.ToLower(text), string(cause)) || (cause == "") != (text == "") || cause != "" && !strings.Contains(text, fmt.Sprintf(" n%d ", i)) {
			t.Errorf("node %d: %q, %q, in the view %q", i, cause, text, causes[i])
		}
	}
	return causes
}

func TestCause(t *testing.T) {
	calm := node{1, 0.1, 1}
	for _, x := range []struct {
		name     string
		devices  string
		exchange float64
		nodes    []node
		want     []Cause
	}{
		{"nothing", "aaaa", 0.5, []node{calm, calm, calm, calm}, []Cause{"", "", "", ""}},
		{"its data", "aaaa", 0.1, []node{calm, {1, 0.6, 1}, calm, calm}, []Cause{"", Input, "", ""}},
		{"all nodes' data", "aaaa", 0.1, []node{{1, 1.2, 1}, {1, 1.2, 1}, {1, 1.2, 1}, {1, 1.2, 1}}, []Cause{Input, Input, Input, Input}},
		{"its compute", "aaaa", 0.1, []node{calm, calm, {1.5, 0.1, 1}, calm}, []Cause{"", "", Compute, ""}},
		{"both, its compute more", "aaaa", 0.1, []node{calm, calm, {1.8, 0.6, 1}, calm}, []Cause{"", "", Compute, ""}},
		{"of two", "aa", 0.1, []node{calm, {1.5, 0.1, 1}}, []Cause{"", Compute}},
		{"another device", "aabb", 0.1, []node{calm, calm, {5, 0.1, 1}, {5, 0.1, 1}}, []Cause{"", "", "", ""}},
		{"the only one of its device", "aaab", 0.1, []node{calm, calm, calm, {5, 0.1, 1}}, []Cause{"", "", "", ""}},
		{"its link", "aaaa", 0.3, []node{calm, {1, 0.1, 5}, calm, calm}, []Cause{"", Network, "", ""}},
		{"a link that matters to nobody", "aaaa", 0.1, []node{calm, {1, 0.1, 5}, calm, calm}, []Cause{"", "", "", ""}},
		{"beside a slow link", "aaaa", 0.3, []node{{1, 0.1, 4}, {1, 0.1, 20}, calm, calm}, []Cause{"", Network, "", ""}},
		{"links that were not measured", "aaaa", 0.9, []node{{1, 0.1, 0}, {1, 0.1, 0}, {1, 0.1, 0}, {1, 0.1, 0}}, []Cause{"", "", "", ""}},
	} {
		if got := blamed(t, x.devices, 50, x.exchange, 0.05, x.nodes, nil); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

// A device that is the only one of its kind is compared with its own best, unless all have become slower.
func TestCauseOfOne(t *testing.T) {
	nodes := []node{{0.1, 0, 1}, {0.1, 0, 1}, {0.5, 0, 1}}
	if got := blamed(t, "aab", 150, 0.1, 0.05, nodes, func(k int) {
		if k == 60 {
			nodes[2].compute = 1
		}
	}); !slices.Equal(got, []Cause{"", "", Compute}) {
		t.Errorf("%q", got)
	}
	nodes = []node{{0.1, 0, 1}, {0.1, 0, 1}, {0.5, 0, 1}}
	if got := blamed(t, "aab", 150, 0.1, 0.05, nodes, func(k int) {
		if k == 60 {
			nodes[0].compute, nodes[1].compute, nodes[2].compute = 0.2, 0.2, 1
		}
	}); !slices.Equal(got, []Cause{"", "", ""}) {
		t.Errorf("all are slower: %q", got)
	}
}

// What passes has no cause.
func TestCauseThatPasses(t *testing.T) {
	for name, change := range map[string]func(k int, n *node){
		"the first round":     func(k int, n *node) { n.compute = []float64{100, 1}[min(k, 1)] },
		"a round":             func(k int, n *node) { n.compute = []float64{1, 100, 1}[min(k/40, 1)+min(k/41, 1)] },
		"some rounds":         func(k int, n *node) { n.compute = []float64{1, 3}[min(k/50, 1)] },
		"messages on and off": func(k int, n *node) { n.link = []float64{20, 20, 20, 1}[k/5%4] },
	} {
		nodes := []node{{1, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}}
		if got := blamed(t, "aaaa", 76, 0.3, 0.05, nodes, func(k int) { change(k, &nodes[1]) }); got[1] != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A machine is slow for an hour of rounds. A break begins anew, and noise alone names nobody.
func TestMachine(t *testing.T) {
	nodes := []node{{1, 0, 1}, {1, 0, 1}, {1.5, 0, 1}, {1, 0, 1}}                // rounds of 24 samples last 40 s
	quick := []node{{0.001, 0, 1}, {0.001, 0, 1}, {0.0015, 0, 1}, {0.001, 0, 1}} // 40 ms
	for rounds, want := range map[int]Cause{90: "", 200: Compute} {
		if got := blamed(t, "aaaa", rounds, 0.1, 0.05, quick, nil); got[2] != want {
			t.Errorf("%d rounds: %q, want %q", rounds, got, want)
		}
	}
	if got := blamed(t, "aaaa", 90, 0.1, 0.05, nodes, nil); got[2] != Compute {
		t.Errorf("%q", got)
	}
	if got := blamed(t, "aaaa", 200, 0.1, 0.05, nodes, nil); !slices.Equal(got, []Cause{"", "", Machine, ""}) {
		t.Errorf("%q", got)
	}
	if got := blamed(t, "aaaa", 200, 0.1, 0.05, nodes, func(k int) {
		if nodes[2].compute = 1.5; k >= 80 && k < 120 {
			nodes[2].compute = 1
		}
	}); got[2] != Compute {
		t.Errorf("after a break: %q", got)
	}
	even := []node{{1, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}}
	if got := blamed(t, "aaaa", 2000, 0.5, 0.3, even, nil); !slices.Equal(got, []Cause{"", "", "", ""}) {
		t.Errorf("noise: %q", got)
	}
}
