package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// bigRun is an agent in the middle of a run of n nodes, with the reports of some rounds
// to decide on.
func bigRun(t testing.TB, n int, choices cluster.Choices) (*Agent, []*cluster.Report, []int) {
	t.Helper()
	c := agenttest.FromYAML(t, fmt.Sprintf("workload: gpt-1.3b-512-fp32\nglobal_batch: %d\nnodes: [{device: a6000, count: %d}, {device: l40s, count: %d}, {device: p40, count: %d}]", 40*n, n/2, n/4, n-n/2-n/4))
	c.Choices = choices
	s := sim.New(c, agenttest.Conditions(t, "interference"), 1)
	a := embeddedPolicy(t).NewAgent(c, agenttest.Speed)
	ctl := Control{Cluster: c, Runner: s, Policy: a}
	var reports []*cluster.Report
	var r Round
	for range 10 {
		var err error
		if r, err = ctl.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
		report := *r.Report
		report.Nodes = slices.Clone(report.Nodes)
		reports = append(reports, &report)
	}
	return a, reports[5:], r.Plan.Sizes
}

var freeRule = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}

// BenchmarkDecide is one decision: observe, choose the rule where it is free, score,
// update, allocate.
func BenchmarkDecide(b *testing.B) {
	for _, rule := range []struct {
		name    string
		choices cluster.Choices
	}{{"all", cluster.Choices{}}, {"free", freeRule}} {
		for _, n := range []int{16, 1000, 2000, 5000, 10_000} {
			b.Run(fmt.Sprintf("rule=%s/nodes=%d", rule.name, n), func(b *testing.B) {
				a, reports, sizes := bigRun(b, n, rule.choices)
				var took []time.Duration
				b.ReportAllocs()
				for k := 0; b.Loop(); k++ {
					begun := time.Now()
					if err := a.Decide(reports[k%len(reports)], nil, &cluster.Plan{Sizes: sizes}); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
			})
		}
	}
}

// A decision keeps its working memory.
func TestDecideAllocatesLittle(t *testing.T) {
	a, reports, sizes := bigRun(t, 1000, freeRule)
	report := reports[0]
	if n := testing.AllocsPerRun(5, func() {
		if err := a.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
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
