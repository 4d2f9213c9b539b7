package env

import (
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

// line is a profile whose seconds are overhead + per*b.
func line(t testing.TB, overhead, per float64) *profile.Profile {
	t.Helper()
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: overhead + per}, {MicroBatch: 64, Seconds: overhead + 64*per}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mixed is a cluster of n nodes of three speeds that are known and not limited by
// memory, with a global batch of 24 samples a node.
func mixed(t testing.TB, n int) *cluster.Cluster {
	t.Helper()
	kinds := []*profile.Profile{line(t, 0.02, 0.01), line(t, 0.05, 0.02), line(t, 0.03, 0.04)}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 24 * n}
	for i := range n {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint(i), Profile: kinds[i%len(kinds)], Limit: profile.NoLimit, Network: 0.01})
	}
	return c
}

// preset returns named conditions.
func preset(t testing.TB, name string) cluster.Conditions {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// action is the index of an update with the middle margin.
func action(t testing.TB, trust Trust, drift float64) int {
	t.Helper()
	for i, a := range Actions {
		if a.Trust == trust && a.Drift == drift && a.Margin == margins[1] {
			return i
		}
	}
	t.Fatalf("no action %v with drift %v", trust, drift)
	return 0
}
