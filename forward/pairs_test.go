package forward

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

func mixed(t *testing.T, nodes string) *cluster.Cluster {
	t.Helper()
	_, c, err := clusterfile.Read(strings.NewReader("workload: bert-base-512-fp32\nglobal_batch: 64\nnodes:\n"+nodes), "mixed.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Nodes of one device are a pair, wherever they stand in the file; a pair's examples follow from its speed, and with them
// all processors come to the same weights.
func TestPairsOfUnequalSpeed(t *testing.T) {
	c := mixed(t, "  - {device: t4}\n  - {device: a10g}\n  - {device: t4}\n  - {device: a10g, count: 3}\n")
	const mean = 12
	ranks, examples, err := Pairs(c, mean)
	if err != nil {
		t.Fatal(err)
	}
	nominal := c.Nominal()
	sum := 0
	for p, n := range examples {
		a, b := ranks[2*p], ranks[2*p+1]
		if c.Nodes[a].Device != c.Nodes[b].Device {
			t.Errorf("pair %d: %s and %s", p, c.Nodes[a].Device, c.Nodes[b].Device)
		}
		sum += n
		for q, m := range examples { // nobody waits longer than for an example
			mine, other := nominal[a].PerSample, nominal[ranks[2*q]].PerSample
			if mine*float64(n-1) > other*float64(m+1) {
				t.Errorf("pair %d takes %v for %d examples, pair %d %v for %d", p, mine*float64(n), n, q, other*float64(m), m)
			}
		}
	}
	if sum != mean*len(examples) || slices.Min(examples) == slices.Max(examples) {
		t.Errorf("examples %v", examples)
	}
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	if !slices.Equal(sorted, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("ranks %v", ranks)
	}
	config := testConfig(len(ranks), len(examples), 30)
	config.Examples = examples
	all := runAll(t, config, network3(t), NewMemory(), nil)
	for _, p := range all {
		if p.Weights.Hash() != all[0].Weights.Hash() {
			t.Errorf("processor %d has other weights", p.Rank)
		}
		if got := len(p.batch.Targets); got != 2*examples[p.Rank/2] {
			t.Errorf("processor %d has %d examples, want two inputs of %d", p.Rank, got, examples[p.Rank/2])
		}
	}
}

func TestPairsRefuse(t *testing.T) {
	if _, _, err := Pairs(mixed(t, "  - {device: t4, count: 3}\n"), 4); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "3 nodes") {
		t.Errorf("an odd number of nodes: %v", err)
	}
}
