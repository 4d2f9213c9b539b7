package main

import (
	"context"
	"math"
	"testing"

	"github.com/evenkeel/evenkeel/planner"
)

// plain is the least seconds of a sample, by dynamic programming over the nodes of the last stages, the devices and the
// replicas that these take (Piper's algorithm over this order of the nodes).
func (c *costs) plain() float64 {
	n, k, s := len(c.Nodes), c.devices, min(c.Batch, c.devices)
	table := make([][]float64, n+1) // at most as many devices and replicas
	wide := s + 1
	for i := range table {
		table[i] = make([]float64, (k+1)*wide)
		for j := range table[i] {
			if i < n {
				table[i][j] = math.Inf(1)
			}
		}
	}
	for from := n - 1; from >= 0; from-- {
		row := table[from]
		for to := from + 1; to <= n; to++ {
			next := table[to]
			for i, shape := range c.shapes {
				used, d := shape[0], shape[1]
				for y := 1; (y-1)*d < s; y++ {
					v, _, ok := c.stage(from, to, c.degree[i], d, y)
					if !ok {
						break
					}
					for all := max(d, (y-1)*d+1); all <= min(y*d, s); all++ {
						for devices := used; devices <= k; devices++ {
							if w := max(v, next[(devices-used)*wide+all-d]); w < row[devices*wide+all] {
								row[devices*wide+all] = w
							}
						}
					}
				}
			}
		}
		for devices := 0; devices <= k; devices++ {
			for all := 1; all <= s; all++ {
				row[devices*wide+all] = min(row[devices*wide+all], row[devices*wide+all-1])
			}
		}
	}
	return table[0][k*wide+s]
}

// slowest prices the stages of a plan one by one, and says whether it keeps to the devices and the batch.
func (c *costs) slowest(stages []stage) (seconds float64, ok bool) {
	devices, replicas, to := 0, 0, len(c.Nodes)
	for i := len(stages) - 1; i >= 0; i-- {
		s := stages[i]
		devices, replicas = devices+s.tensor*s.replicas, replicas+s.replicas
		degree := map[int]int{1: 0, 2: 1, 4: 2, 8: 3}[s.tensor]
		v, _, fits := c.stage(s.from, s.to, degree, s.replicas, (replicas+s.replicas-1)/s.replicas)
		if !fits || s.to != to || c.Batch%s.replicas > 0 {
			return 0, false
		}
		seconds, to = max(seconds, v), s.from
	}
	return seconds, to == 0 && devices <= c.devices && replicas <= c.Batch
}

func TestSearches(t *testing.T) {
	g, err := readGraph("testdata/tiny.json", 6)
	if err != nil {
		t.Fatal(err)
	}
	differ := 0
	for _, limit := range []float64{70, 90, 130, 200, 1000} {
		for _, devices := range []int{3, 4, 6, 8} {
			g.Limit = limit
			c := newCosts(g, devices)
			want := c.plain()
			got, stages := c.exact()
			if got != want {
				t.Fatalf("%v bytes, %d devices: %v, plain dynamic programming %v", limit, devices, got, want)
			}
			if math.IsInf(want, 1) {
				continue
			}
			if v, ok := c.slowest(stages); !ok || v != got {
				t.Fatalf("%v bytes, %d devices: %v is %v, %v", limit, devices, stages, v, got)
			}
			alike, stages, err := c.search(context.Background(), planner.SearchOptions{})
			if err != nil {
				continue // only with replicas that differ
			}
			if v, ok := c.slowest(stages); !ok || v != alike || alike < want {
				t.Fatalf("%v bytes, %d devices: %v is %v, %v; exact %v", limit, devices, stages, v, alike, want)
			}
			if alike > want {
				differ++
			}
		}
	}
	t.Logf("%d plans are better with replicas that differ", differ)
}

func TestLongerModel(t *testing.T) {
	g, err := readGraph("testdata/tiny.json", 6)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Nodes) != 9 {
		t.Fatalf("%d nodes", len(g.Nodes))
	}
	transformers, masked := 0, 0
	for _, e := range g.Edges {
		if e.From >= e.To {
			t.Errorf("edge from %d to %d", e.From, e.To)
		}
		if g.Nodes[e.From].Name == "mask" {
			masked++
		}
	}
	for _, n := range g.Nodes {
		if n.Name == transformer {
			transformers++
		}
	}
	if transformers != 6 || masked != 3 {
		t.Errorf("%d transformer layers, %d of them masked", transformers, masked)
	}
	if _, err := readGraph("testdata/none.json", 6); err == nil {
		t.Error("no such file")
	}
}
