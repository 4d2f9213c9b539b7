package agent

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// floors is what must at least be learned. Every figure stands beside the number of
// trials and the spread from which it was set; a seed gives the same bits, so a test
// fails only when something has changed.
//
//go:embed testdata/floors.json
var floorsText []byte

type floors struct {
	Embedded struct {
		Note      string           `json:"note"`
		Clusters  []string         `json:"clusters"`
		Seeds     int              `json:"seeds"`
		Rounds    int              `json:"rounds"`
		Scenarios map[string]gains `json:"scenarios"`
		Rule      WaterFill        `json:"waterfill"`
	} `json:"embedded_policy"`
	Free struct {
		Note      string               `json:"note"`
		Clusters  []string             `json:"clusters"`
		Seeds     int                  `json:"seeds"`
		Rounds    int                  `json:"rounds"`
		Scenarios map[string]freeGains `json:"scenarios"`
	} `json:"embedded_policy_free_rule"`
	Scratch struct {
		Note   string      `json:"note"`
		Config TrainConfig `json:"config"`
		Trials int         `json:"trials"`
		Early  floor       `json:"saved_over_first_sets"`
		Random floor       `json:"saved_over_random"`
	} `json:"from_scratch"`
}

// gains are floors of the policy's progress, and of how much that is above the agent's
// fallback rule and above water-filling with one gain and margin.
type gains struct {
	Progress  floor `json:"progress"`
	Model     floor `json:"over_model"`
	WaterFill floor `json:"over_waterfill"`
}

// freeGains are floors of what choosing quorum and grace is worth: above the same agent
// waiting for all, and above water-filling under one good fixed rule.
type freeGains struct {
	All   floor `json:"over_waiting_for_all"`
	Fixed floor `json:"over_fixed_rule"`
}

type floor struct {
	Floor    float64 `json:"floor"`
	Measured float64 `json:"measured"` // mean over the trials
	Spread   float64 `json:"spread"`   // sd over the trials
}

func (f floor) check(t *testing.T, what string, values []float64) {
	t.Helper()
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	spread := math.Sqrt(square / max(float64(len(values)-1), 1))
	t.Logf("%s: mean %.4f over %d trials, spread %.4f, floor %v", what, mean, len(values), spread, f.Floor)
	if mean < f.Floor {
		t.Errorf("%s: %.4f (spread %.4f over %d trials) is below the floor %v; measured when it was set: %v, spread %v", what, mean, spread, len(values), f.Floor, f.Measured, f.Spread)
	}
}

func readFloors(t *testing.T) floors {
	t.Helper()
	var f floors
	if err := json.Unmarshal(floorsText, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// The embedded policy is worth its network on devices and models it never saw: better
// than its own fallback, and than a good rule with one setting for every scenario.
func TestEmbeddedPolicyFloors(t *testing.T) {
	if underRace {
		t.Skip("TestCompare runs the same code under the race detector")
	}
	f := readFloors(t).Embedded
	policies, err := Find([]string{"ddqn", "model"})
	if err != nil {
		t.Fatal(err)
	}
	policies = append(policies, Contender{Name: "rule", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
		return NewWaterFill(c, f.Rule)
	}})
	config := CompareConfig{Policies: policies, Trained: embeddedPolicy(t), Seeds: f.Seeds, Rounds: f.Rounds}
	for _, name := range f.Clusters {
		_, c, err := EmbeddedCluster(name, profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		config.Cases = append(config.Cases, Case{name, c, speed})
	}
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
			g.Progress.check(t, "progress", progress)
			g.Model.check(t, "over the model", model)
			g.WaterFill.check(t, "over water-filling", rule)
		})
	}
}

// fixedRule is water-filling under a rule that does well everywhere on the training split.
type fixedRule struct{ Policy }

func (f fixedRule) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect = cluster.Rule{Quorum: 0.8, Grace: 0.06}.Apply(plan.Collect)
	return f.Policy.Decide(report, present, plan)
}

// Left to choose when rounds end, the embedded policy is far ahead of waiting for all, and
// not behind a good fixed rule.
func TestFreeRuleFloors(t *testing.T) {
	if underRace {
		t.Skip("TestCompare runs the same code under the race detector")
	}
	f := readFloors(t).Free
	policies := []Contender{
		{Name: "free", create: func(c *cluster.Cluster, _ *sim.Simulator, tr *Trained, w [env.Objectives]float64, _ int) Policy {
			own := *c
			own.Choices = freeRule
			return tr.NewAgent(&own, w)
		}},
		{Name: "all", create: func(c *cluster.Cluster, _ *sim.Simulator, tr *Trained, w [env.Objectives]float64, _ int) Policy {
			return tr.NewAgent(c, w)
		}},
		{Name: "fixed", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return fixedRule{NewWaterFill(c, WaterFill{Gain: 0.35, Margin: 0.25})}
		}},
	}
	config := CompareConfig{Policies: policies, Trained: embeddedPolicy(t), Seeds: f.Seeds, Rounds: f.Rounds}
	for _, name := range f.Clusters {
		_, c, err := EmbeddedCluster(name, profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		config.Cases = append(config.Cases, Case{name, c, speed})
	}
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
			g.All.check(t, "over waiting for all", all)
			g.Fixed.check(t, "over a fixed rule", fixed)
		})
	}
}
