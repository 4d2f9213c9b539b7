// Package envtest holds what the tests of env and of its episodes share.
package envtest

import (
	"fmt"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Line is a profile whose seconds are overhead + per*b.
func Line(t testing.TB, overhead, per float64) *profile.Profile {
	t.Helper()
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: overhead + per}, {MicroBatch: 64, Seconds: overhead + 64*per}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Mixed is a cluster of n nodes of three speeds that are known and not limited by
// memory, with a global batch of 24 samples a node.
func Mixed(t testing.TB, n int) *cluster.Cluster {
	t.Helper()
	kinds := []*profile.Profile{Line(t, 0.02, 0.01), Line(t, 0.05, 0.02), Line(t, 0.03, 0.04)}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 24 * n}
	for i := range n {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint(i), Profile: kinds[i%len(kinds)], Limit: profile.NoLimit, Network: 0.01})
	}
	return c
}

// Preset returns named conditions.
func Preset(t testing.TB, name string) cluster.Conditions {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
