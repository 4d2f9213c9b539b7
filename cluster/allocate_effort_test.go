package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/cluster/profile"
)

// uneven is a cluster whose nodes never finish two samples at the same moment: lines, or
// curves with a bend.
func uneven(rng *rand.Rand, nodes int, curved bool) (*Cluster, []Performance) {
	c, perf := &Cluster{Workload: "w", GlobalBatch: nodes * (1 + rng.IntN(200))}, []Performance{}
	for range nodes {
		n := Node{Limit: profile.NoLimit}
		if curved {
			a, b := 0.1+rng.Float64(), 0.1+rng.Float64()
			p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: a}, {MicroBatch: 20, Seconds: a + b}, {MicroBatch: 100, Seconds: a + b + 20*rng.Float64()}}, "test")
			if err != nil {
				panic(err)
			}
			n.Profile = p
		}
		c.Nodes = append(c.Nodes, n)
		perf = append(perf, Performance{Overhead: rng.Float64(), PerSample: 0.01 + rng.Float64()})
	}
	return c, perf
}

func levelOf(c *Cluster, perf []Performance) (waterLevel, float64) {
	var l waterLevel
	l.begin(c, nil, perf)
	var a Allocator
	a.limits(c, nil)
	low, _ := l.find(c, nil, perf, a.most, make([]int, len(c.Nodes)))
	return l, low
}

// The search leaves at most half a sample per node to deal, after few evaluations of the
// nodes; the bound leaves room for processors that round differently.
func TestWaterLevelEffort(t *testing.T) {
	for _, x := range []struct {
		curved bool
		most   int // evaluations in all instances together
	}{{false, 440}, {true, 4000}} {
		rng, steps := rand.New(rand.NewPCG(1, 2)), 0
		for range 300 {
			c, perf := uneven(rng, 1+rng.IntN(40), x.curved)
			l, level := levelOf(c, perf)
			missing := c.GlobalBatch
			for i := range c.Nodes {
				missing -= share(&c.Nodes[i], perf[i], level, c.GlobalBatch)
			}
			if missing < 0 || missing > len(c.Nodes)/2 {
				t.Fatalf("%d nodes, batch %d: %d samples are left to deal", len(c.Nodes), c.GlobalBatch, missing)
			}
			if l.steps < 1 {
				t.Fatalf("%d steps", l.steps)
			}
			steps += l.steps
		}
		if steps > x.most {
			t.Errorf("curved %v: %d evaluations, at most %d", x.curved, steps, x.most)
		}
	}
}

// Where a node takes many samples in the same time, they are dealt at once; a node with
// the whole global batch leaves the heap.
func TestDealAtOnce(t *testing.T) {
	flat, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}, {MicroBatch: 100, Seconds: 1}, {MicroBatch: 200, Seconds: 2}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{GlobalBatch: 150, Nodes: []Node{{Profile: flat, Limit: 150}, {Limit: 2}, {Limit: 4}}}
	perf, sizes := []Performance{{PerSample: flat.PerSample()}, {PerSample: 200}, {PerSample: 100}}, []int{1, 1, 1}
	var h nextFinish
	most := []int{150, 150, 150}
	h.reset(c, most, sizes, func(i, b int) float64 { return c.Nodes[i].Finish(perf[i], b) })
	if n := h.deal(c, perf, most, sizes, 50); n != 50 || sizes[0] != 51 {
		t.Errorf("dealt %d, sizes %v", n, sizes)
	}
	if n := h.deal(c, perf, most, sizes, 500); n != 49 || sizes[0] != 100 {
		t.Errorf("dealt %d, sizes %v", n, sizes)
	}
	for total := 50; total > 0; {
		total -= h.deal(c, perf, most, sizes, total)
	}
	if got := fmt.Sprint(sizes, len(h)); got != "[150 1 1] 2" {
		t.Error(got)
	}
	for range 4 {
		h.deal(c, perf, most, sizes, 4)
	}
	if got := fmt.Sprint(sizes, len(h)); got != "[150 2 4] 2" {
		t.Error(got)
	}
}
