package live

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
)

// FuzzTake feeds any report to a generation: it is refused, or what comes out can be believed.
func FuzzTake(f *testing.F) {
	for _, r := range []*Report{round(0, 1, []int{40, 24}), {Round: 1 << 40, Plan: 2, Ranks: []*RankReport{nil, nil}}} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, timed bool) {
		var r Report
		if json.Unmarshal(text, &r) != nil {
			return
		}
		c := plain(64, 2)
		g := NewGeneration(c)
		plan := cluster.Plan{Number: 1, Sizes: []int{40, 24}}
		if timed {
			plan.Collect.Deadline = time.Second
		}
		g.Hand(plan, 0)
		verdict, report, err := g.Take(&r, time.Hour)
		if err != nil || verdict != Accepted {
			if report != nil {
				t.Fatalf("%v, %v with a report", verdict, err)
			}
			return
		}
		accepted := 0
		for i := range report.Nodes {
			n := &report.Nodes[i]
			accepted += n.Samples
			if n.Seconds < 0 || n.Idle < 0 || n.Size < 0 || !timed && n.Size > plan.Sizes[i] || !(n.Norm >= 0) || math.IsInf(n.Norm, 0) || n.Agree < 0 || n.Agree > 1 {
				t.Fatalf("rank %d: %+v", i, n)
			}
		}
		if report.Wait <= 0 || report.Start < 0 || report.Accepted != accepted {
			t.Fatalf("%+v", report)
		}
		g.Observe(report)
	})
}
