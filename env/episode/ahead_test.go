package episode

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

// free is an episode whose rule may be chosen.
func free(t testing.TB, n int, conditions string, rounds int) *Episode {
	t.Helper()
	c := envtest.Mixed(t, n)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	e, err := New(Config{Cluster: c, Conditions: envtest.Preset(t, conditions), Seed: 7, Rounds: rounds, Weights: [env.Objectives]float64{1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(); err != nil {
		t.Fatal(err)
	}
	return e
}

// model plays a round by the model's own updates under the rule.
func (e *Episode) model(t testing.TB, rule int) Step {
	t.Helper()
	e.SetRule(rule)
	actions := make([]int, e.Size())
	e.tracker.Model(actions)
	s, err := e.Step(actions)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Judging rules changes nothing of the episode, and the preferred rule is worth nothing
// above itself.
func TestJudgingLeavesNoTrace(t *testing.T) {
	asked, plain := free(t, 9, "bursts", 60), free(t, 9, "bursts", 60)
	rng := rand.New(rand.NewPCG(1, 1))
	judged := 0
	for range 58 {
		rule := rng.IntN(len(cluster.Rules))
		preferred := asked.BestRule(nil)
		rules := []int{preferred, rng.IntN(len(cluster.Rules)), rule}
		asked.Ask(rules)
		a, b := asked.model(t, rule), plain.model(t, rule)
		if len(a.Rules) != len(rules)*env.Objectives || len(b.Rules) != 0 {
			t.Fatalf("%d and %d judgements", len(a.Rules), len(b.Rules))
		}
		for o, v := range a.Rules[:env.Objectives] {
			if v != 0 {
				t.Fatalf("the preferred rule is %v above itself in objective %d", v, o)
			}
		}
		if slices.ContainsFunc(a.Rules, func(v float32) bool { return v != 0 }) {
			judged++
		}
		if a.Reward != b.Reward || !slices.Equal(a.Nodes, b.Nodes) || !slices.Equal(asked.RoundRow(nil), plain.RoundRow(nil)) {
			t.Fatal("the episode that was asked went elsewhere")
		}
	}
	if judged < 40 {
		t.Errorf("only %d rounds tell rules apart", judged)
	}
}
