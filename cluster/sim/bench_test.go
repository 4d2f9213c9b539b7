package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// manyNodes are 1,000 of five devices, and shares for them. limit bounds their micro-batches.
func manyNodes(b *testing.B, batch, limit int) (*cluster.Cluster, cluster.Plan) {
	b.Helper()
	c := &cluster.Cluster{GlobalBatch: batch}
	devices := []string{"a100-40g", "a10g", "a6000", "p40", "t4"}
	for i := range 1000 {
		p, err := profile.Embedded().Lookup(devices[i%len(devices)], "llama-3b-512-fp16")
		if err != nil {
			b.Fatal(err)
		}
		c.Nodes = append(c.Nodes, cluster.Node{Profile: p, Limit: limit})
	}
	plan := cluster.Plan{Sizes: make([]int, len(c.Nodes)), Perf: c.Nominal()}
	var err error
	if plan.Finish, err = cluster.Allocate(c, nil, plan.Perf, plan.Sizes); err != nil {
		b.Fatal(err)
	}
	return c, plan
}

func benchRounds(b *testing.B, c *cluster.Cluster, k cluster.Conditions, plan cluster.Plan) {
	s := New(c, k, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Round(context.Background(), plan); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "node-rounds/s")
}

// BenchmarkRound runs 1,000 nodes under the conditions that cost most.
func BenchmarkRound(b *testing.B) {
	for _, name := range []string{"steady", "drift", "bursts", "failures"} {
		k, err := cluster.Preset(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, quorum := range []float64{1, 0.8} {
			b.Run(fmt.Sprintf("%s/quorum=%v", name, quorum), func(b *testing.B) {
				c, plan := manyNodes(b, 16_000, profile.NoLimit)
				plan.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: quorum}, GraceShare: 0.1}
				benchRounds(b, c, k, plan)
			})
		}
	}
}

// BenchmarkMicroSteps runs 1,000 nodes whose shares are 8 micro-steps in the mean, until a
// deadline and without one; within is the share of the noise that each micro-step has to itself.
func BenchmarkMicroSteps(b *testing.B) {
	for _, name := range []string{"steady", "bursts"} {
		k, err := cluster.Preset(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, within := range []float64{0, 0.5} {
			for _, timed := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/within=%v/deadline=%v", name, within, timed), func(b *testing.B) {
					c, plan := manyNodes(b, 32_000, 4)
					k.NoiseWithin = within
					if timed {
						plan.Collect = cluster.Collect{Deadline: time.Duration(plan.Finish * 1e9)}
					}
					benchRounds(b, c, k, plan)
				})
			}
		}
	}
}
