package env

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
)

// free is an episode whose rule may be chosen.
func free(t testing.TB, n int, conditions string, rounds int) *Env {
	t.Helper()
	c := mixed(t, n)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	e, err := New(Config{Cluster: c, Conditions: preset(t, conditions), Seed: 7, Rounds: rounds, Weights: [Objectives]float64{1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(); err != nil {
		t.Fatal(err)
	}
	return e
}

// model plays a round by the model's own updates under the rule.
func (e *Env) model(t testing.TB, rule int) Step {
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
		if len(a.Rules) != len(rules)*Objectives || len(b.Rules) != 0 {
			t.Fatalf("%d and %d judgements", len(a.Rules), len(b.Rules))
		}
		for o, v := range a.Rules[:Objectives] {
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

// Where the averages see every node in time they are the means of the rounds' true
// values, whichever rule is in force: no rule needs trying.
func TestMeansAreThoseOfTheRounds(t *testing.T) {
	e := free(t, 12, "steady", 200)
	all := len(cluster.Rules) - 1
	var o cluster.Outcomes
	sums := make([][Objectives]float64, len(cluster.Rules))
	values := make([][Objectives]float64, len(cluster.Rules))
	const rounds = 100
	for range rounds {
		e.SetRule(all)
		actions := make([]int, e.Size())
		e.tracker.Model(actions)
		if _, err := e.Step(actions); err != nil {
			t.Fatal(err)
		}
		o.Set(e.tracker.round.work)
		Values(values, &o, 12, float64(e.config.Cluster.GlobalBatch), e.tracker.scale, e.tracker.round.rate)
		center(values)
		for a := range values {
			for k, v := range values[a] {
				sums[a][k] += v
			}
		}
	}
	for a := range sums {
		for k := range sums[a] {
			mean := sums[a][k] / rounds
			if got := e.tracker.Means()[a][k]; math.Abs(got-mean) > 0.03 {
				t.Errorf("%v, objective %d: average %v, mean of the rounds %v", cluster.Rules[a], k, got, mean)
			}
		}
	}
}

// A rule that is preferred under some weights is not given up when the weight of an
// objective in which it is best rises; and weights on one objective alone find its best.
func TestBestRuleFollowsTheWeights(t *testing.T) {
	e := free(t, 16, "bursts", 120)
	for range 100 {
		e.model(t, e.BestRule(nil))
	}
	means, allowed := e.tracker.Means(), e.Allowed()
	for o := range Objectives {
		last := math.Inf(-1)
		for _, w := range []float64{0, 0.1, 0.2, 0.4, 0.7, 1} {
			weights := [Objectives]float64{}
			for k := range weights {
				weights[k] = (1 - w) / (Objectives - 1)
			}
			weights[o] = w
			got := means[e.tracker.BestRule(allowed, weights, nil)][o]
			if got < last-1e-12 {
				t.Errorf("objective %d falls from %v to %v as its weight rises to %v", o, last, got, w)
			}
			last = got
		}
		for _, a := range allowed {
			if means[a][o] > last+1e-12 {
				t.Errorf("objective %d alone: %v, but rule %v has %v", o, last, cluster.Rules[a], means[a][o])
			}
		}
	}
	// A correction decides from rulePays on.
	speed := [Objectives]float64{1}
	best := e.tracker.BestRule(allowed, speed, nil)
	other := (best + 3) % len(cluster.Rules)
	corrections := make([]float32, len(cluster.Rules)*Objectives)
	corrections[other*Objectives] = float32(RoundScale * (means[best][0] - means[other][0] + 0.9*rulePays))
	if got := e.tracker.BestRule(allowed, speed, corrections); got != best {
		t.Errorf("a gain below the threshold moves the choice from %d to %d", best, got)
	}
	corrections[other*Objectives] = float32(RoundScale * (means[best][0] - means[other][0] + 1.1*rulePays))
	if got := e.tracker.BestRule(allowed, speed, corrections); got != other {
		t.Errorf("a gain above the threshold leads to %d, want %d", got, other)
	}
	if got := e.tracker.BestRule([]int{4}, speed, corrections); got != 4 {
		t.Errorf("the only rule allowed is 4, got %d", got)
	}
}

// Rules are worth choosing: under bursts the averages lead to much more progress than
// waiting for everybody.
func TestChoosingRulesPays(t *testing.T) {
	run := func(choose func(*Env) int) float64 {
		e := free(t, 16, "bursts", 150)
		for range 140 {
			e.model(t, choose(e))
		}
		return e.tracker.round.rate // progress per second, averaged over the rounds
	}
	chosen := run(func(e *Env) int { return e.BestRule(nil) })
	all := run(func(*Env) int { return len(cluster.Rules) - 1 })
	t.Logf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
	if chosen < 1.1*all {
		t.Errorf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
	}
}

func TestRoundRow(t *testing.T) {
	e := free(t, 5, "drift", 50)
	for k := range 40 {
		row := e.RoundRow(nil)
		if len(row) != RoundFeatures {
			t.Fatalf("%d features, want %d", len(row), RoundFeatures)
		}
		for i, v := range row {
			if !(math.Abs(float64(v)) < 12) {
				t.Fatalf("round %d: feature %d is %v", k, i, v)
			}
		}
		e.model(t, k%len(cluster.Rules))
	}
}

// The noise scale is found from the gradients' norms.
func TestNoiseScale(t *testing.T) {
	e := free(t, 8, "steady", 80)
	for range 60 {
		e.model(t, len(cluster.Rules)-1)
	}
	if got, want := e.tracker.NoiseScale(), e.sim.Scale(); math.Abs(got/want-1) > 0.05 {
		t.Errorf("noise scale %v, truth %v", got, want)
	}
}

func TestProgress(t *testing.T) {
	for _, scale := range []float64{0, 40, 4000} {
		if v, _ := progress(100, 100, scale); math.Abs(v-1) > 1e-12 {
			t.Errorf("scale %v: a whole batch is worth %v", scale, v)
		}
		for _, n := range []float64{10, 60, 150} {
			v, slope := progress(n, 100, scale)
			w, _ := progress(n+1e-4, 100, scale)
			if math.Abs((w-v)/1e-4-slope) > 1e-6 {
				t.Errorf("scale %v, %v samples: slope %v, difference quotient %v", scale, n, slope, (w-v)/1e-4)
			}
		}
	}
}
