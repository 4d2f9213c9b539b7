package evaluation

import (
	"context"
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
)

// floors are the sections of the range file that concern the embedded policy.
type floors struct {
	Embedded struct {
		Note      string             `json:"note"`
		Clusters  []string           `json:"clusters"`
		Seeds     int                `json:"seeds"`
		Rounds    int                `json:"rounds"`
		Scenarios map[string]gains   `json:"scenarios"`
		Rule      baseline.WaterFill `json:"waterfill"`
	} `json:"embedded_policy"`
	Free struct {
		Note      string               `json:"note"`
		Clusters  []string             `json:"clusters"`
		Seeds     int                  `json:"seeds"`
		Rounds    int                  `json:"rounds"`
		Scenarios map[string]freeGains `json:"scenarios"`
	} `json:"embedded_policy_free_rule"`
}

// gains are floors of the policy's progress, and of how much that is above the agent's
// fallback rule and above water-filling with one gain and margin.
type gains struct {
	Progress  agenttest.Floor `json:"progress"`
	Model     agenttest.Floor `json:"over_model"`
	WaterFill agenttest.Floor `json:"over_waterfill"`
}

// freeGains are floors of what choosing quorum and grace is worth: above the same agent
// waiting for all, and above water-filling under one good fixed rule.
type freeGains struct {
	All   agenttest.Floor `json:"over_waiting_for_all"`
	Fixed agenttest.Floor `json:"over_fixed_rule"`
}

func readFloors(t *testing.T) (f floors) {
	t.Helper()
	agenttest.ReadFloors(t, &f)
	return f
}

// The embedded policy is worth its network on devices and models it never saw: better
// than its own fallback, and than a good rule with one setting for every scenario.
func TestEmbeddedPolicyFloors(t *testing.T) {
	slow.Skip(t)
	if race.Enabled {
		t.Skip("TestCompare runs the same code under the race detector")
	}
	f := readFloors(t).Embedded
	policies, err := Find([]string{"ddqn", "model"})
	if err != nil {
		t.Fatal(err)
	}
	policies = append(policies, Spec{Name: "rule", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, _ int) agent.Policy {
		return baseline.NewWaterFill(c, f.Rule)
	}})
	config := Config{Policies: policies, Trained: embedded(t), Cases: namedCases(t, f.Clusters), Seeds: f.Seeds, Rounds: f.Rounds}
	for name, g := range f.Scenarios {
		t.Run(name, func(t *testing.T) {
			config.Scenarios = []Scenario{scenario(t, name)}
			lines, err := Compare(context.Background(), config)
			if err != nil {
				t.Fatal(err)
			}
			var progress, model, rule []float64
			for k := 0; k < len(config.Cases)*3; k += 3 {
				progress = append(progress, lines[k].ratios...)
				model = append(model, differences(lines[k].ratios, lines[k+1].ratios)...)
				rule = append(rule, differences(lines[k].ratios, lines[k+2].ratios)...)
			}
			g.Progress.Check(t, "progress", progress)
			g.Model.Check(t, "over the model", model)
			g.WaterFill.Check(t, "over water-filling", rule)
		})
	}
}

// namedCases are embedded clusters, judged by speed.
func namedCases(t *testing.T, names []string) []Case {
	t.Helper()
	var cases []Case
	for _, name := range names {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, Case{name, c, agenttest.Speed})
	}
	return cases
}

// freeRule leaves quorum and grace to the policy.
var freeRule = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}

// fixedRule does well everywhere on the training split.
var fixedRule = cluster.Rule{Quorum: 0.8, Grace: 0.06}

// Left to choose when rounds end, the embedded policy is far ahead of waiting for all, and
// not behind a good fixed rule.
func TestFreeRuleFloors(t *testing.T) {
	slow.Skip(t)
	if race.Enabled {
		t.Skip("TestCompare runs the same code under the race detector")
	}
	f := readFloors(t).Free
	policies := []Spec{
		{Name: "free", create: func(c *cluster.Cluster, _ *sim.Simulator, tr *agent.Trained, w [env.Objectives]float64, _ int) agent.Policy {
			own := *c
			own.Choices = freeRule
			return tr.NewAgent(&own, w)
		}},
		{Name: "all", create: func(c *cluster.Cluster, _ *sim.Simulator, tr *agent.Trained, w [env.Objectives]float64, _ int) agent.Policy {
			return tr.NewAgent(c, w)
		}},
		{Name: "fixed", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, _ int) agent.Policy {
			return baseline.NewKofN(c, fixedRule, baseline.WaterFill{Gain: 0.35, Margin: 0.25})
		}},
	}
	config := Config{Policies: policies, Trained: embedded(t), Cases: namedCases(t, f.Clusters), Seeds: f.Seeds, Rounds: f.Rounds}
	for name, g := range f.Scenarios {
		t.Run(name, func(t *testing.T) {
			config.Scenarios = []Scenario{scenario(t, name)}
			lines, err := Compare(context.Background(), config)
			if err != nil {
				t.Fatal(err)
			}
			var all, fixed []float64
			for k := 0; k < len(config.Cases)*3; k += 3 {
				all = append(all, differences(lines[k].ratios, lines[k+1].ratios)...)
				fixed = append(fixed, differences(lines[k].ratios, lines[k+2].ratios)...)
			}
			g.All.Check(t, "over waiting for all", all)
			g.Fixed.Check(t, "over a fixed rule", fixed)
		})
	}
}
