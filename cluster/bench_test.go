package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/cluster/profile"
)

// mixed is a cluster of n nodes with the profiles measured of one workload.
func mixed(tb testing.TB, n int) (*Cluster, []Performance) {
	tb.Helper()
	catalogue, rng := profile.Embedded(), rand.New(rand.NewPCG(1, 1))
	c := &Cluster{Workload: "llama-3b-512-fp16", GlobalBatch: 24 * n}
	devices := []string{"a100-40g", "a10g", "a6000", "p40", "t4"}
	for i := range n {
		device := devices[i%len(devices)]
		p, err := catalogue.Lookup(device, c.Workload)
		if err != nil {
			tb.Fatal(err)
		}
		c.Nodes = append(c.Nodes, Node{Name: fmt.Sprintf("n%d", i), Device: device, Profile: p, Limit: profile.NoLimit})
	}
	perf := c.Nominal()
	for i := range perf {
		perf[i].PerSample *= 1 + rng.Float64()
		perf[i].Overhead = 0.01 * rng.Float64()
	}
	return c, perf
}

func BenchmarkAllocate(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			c, perf := mixed(b, n)
			sizes, a := make([]int, n), Allocator{}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Allocate(c, nil, perf, sizes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
