package agent

import (
	"context"
	"math"
	"slices"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// Nodes join, fail in the middle of a round, hang, and return, a third of them of a type
// without a profile: every round's sizes are sound, and in the end the agent predicts the
// nodes' times, whether it knew their type or learned it.
func TestElasticCluster(t *testing.T) {
	for _, rule := range []string{"all", "free"} {
		t.Run(rule, func(t *testing.T) {
			c := agenttest.HeldOut16(t)
			for i := range c.Nodes {
				if n := &c.Nodes[i]; i%3 == 0 {
					n.Hidden.Profile, n.Profile = n.Profile, nil
				}
			}
			if rule == "free" {
				c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
			}
			conditions := agenttest.Conditions(t, "steady")
			conditions.Failures = cluster.Failures{Rate: 0.01, Rounds: 12, Silent: 0.3}
			conditions.Joins = cluster.Joins{Share: 0.25, Rounds: 40}
			s := sim.New(c, conditions, 5)
			a := embeddedPolicy(t).NewAgent(c, agenttest.Speed)
			ctl := Control{Cluster: c, Runner: s, Policy: a}
			var errs []float64
			came, went := 0, 0
			before := slices.Clone(s.Present())
			for round := range 250 {
				present := slices.Clone(s.Present())
				for i := range present {
					switch {
					case present[i] && !before[i]:
						came++
					case !present[i] && before[i]:
						went++
					}
				}
				before = present
				r, err := ctl.Round(context.Background())
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				agenttest.CheckSizes(t, c, present, r.Plan.Sizes)
				for i := range r.Report.Nodes {
					n := &r.Report.Nodes[i]
					if round > 150 && n.Measured() && n.Behind == 0 {
						errs = append(errs, math.Abs(c.Nodes[i].Finish(a.Performance()[i], n.Size)/n.Seconds-1))
					}
				}
			}
			slices.Sort(errs)
			median, p90 := errs[len(errs)/2], errs[len(errs)*9/10]
			t.Logf("%d came, %d went; predictions are %.1f%% off in the median, 9 in 10 within %.1f%%", came, went, 100*median, 100*p90)
			if came < 10 || went < 10 {
				t.Errorf("only %d came and %d went", came, went)
			}
			if median > 0.06 || p90 > 0.3 {
				t.Errorf("predictions are %.1f%% off in the median, 9 in 10 within %.1f%%", 100*median, 100*p90)
			}
		})
	}
}
