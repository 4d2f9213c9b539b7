package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
)

// bigRun is an agent in the middle of a run of n nodes, with the report to decide on.
func bigRun(t testing.TB, n int) (*Agent, *cluster.Report, []int) {
	t.Helper()
	c := fromYAML(t, fmt.Sprintf("workload: gpt-1.3b-512-fp32\nglobal_batch: %d\nnodes: [{device: a6000, count: %d}, {device: l40s, count: %d}, {device: p40, count: %d}]", 40*n, n/2, n/4, n-n/2-n/4))
	s := sim.New(c, conditionsOf(t, "interference"), 1)
	a := embeddedPolicy(t).NewAgent(c, speed)
	ctl := Control{Cluster: c, Runner: s, Policy: a}
	var r Round
	for range 5 {
		var err error
		if r, err = ctl.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return a, r.Report, r.Plan.Sizes
}

// BenchmarkDecide is one decision: observe, score, update, allocate.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{16, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, report, sizes := bigRun(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A decision keeps its working memory: what is left are a few objects of the graph's.
func TestDecideAllocatesLittle(t *testing.T) {
	a, report, sizes := bigRun(t, 1000)
	if n := testing.AllocsPerRun(5, func() {
		if err := a.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}); n > 100 {
		t.Errorf("%v allocations in a decision over 1,000 nodes", n)
	}
	m := NewModel(a.cluster)
	if n := testing.AllocsPerRun(5, func() {
		if err := m.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations in a decision of the model over 1,000 nodes", n)
	}
}
