package episode

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
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

// A rule's value is what four rounds of the same cluster bring: this one under the rule,
// the others under the one after it.
func TestPlayOut(t *testing.T) {
	e := free(t, 6, "bursts", 60)
	for range 12 {
		e.model(t, 2)
	}
	c := *e.config.Cluster
	c.Choices = cluster.Choices{}
	for _, x := range [][2]int{{0, 0}, {3, 7}, {len(cluster.Rules) - 1, 0}} {
		var s sim.Simulator
		s.CopyFrom(e.sim)
		tracker := env.NewTracker(&c)
		tracker.CopyFrom(e.tracker)
		var alloc cluster.Allocator
		n, want := e.Size(), 0.0
		sizes, actions, perf := slices.Clone(e.sizes), make([]int, n), make([]cluster.Performance, n)
		play := func(rule int) {
			scale := s.Scale()
			report, err := s.Round(context.Background(), cluster.Plan{Sizes: sizes, Collect: cluster.Rules[rule].Apply(cluster.Collect{})})
			if err != nil {
				t.Fatal(err)
			}
			worth, _ := env.Progress(report.Counted, float64(c.GlobalBatch), scale)
			want += worth
			want -= e.tracker.Rate() * report.Wait.Seconds()
			tracker.Observe(report)
		}
		play(x[0])
		for range 3 {
			tracker.SetRule(cluster.Rules[x[1]].Apply(cluster.Collect{}), n)
			tracker.Model(actions)
			tracker.Apply(actions, perf)
			tracker.Occupy(perf, perf)
			if _, err := alloc.Allocate(&c, s.Present(), perf, sizes); err != nil {
				t.Fatal(err)
			}
			play(x[1])
		}
		got, err := e.playOut(x[0], x[1])
		if err != nil || !near(got, want) || got == 0 {
			t.Errorf("rule %d, then %d: %v (%v), want %v", x[0], x[1], got, err, want)
		}
	}
}

// A judgement is the value above the preferred rule's, less what the averages say of it.
func TestJudge(t *testing.T) {
	e := free(t, 9, "bursts", 60)
	for range 20 {
		e.model(t, len(cluster.Rules)-1)
	}
	all := make([]int, len(cluster.Rules))
	for i := range all {
		all[i] = i
	}
	e.Ask(all)
	if err := e.judge(); err != nil {
		t.Fatal(err)
	}
	preferred := e.tracker.BestRule(e.allowed, [env.Objectives]float64{1}, nil)
	base, err := e.playOut(preferred, preferred)
	if err != nil {
		t.Fatal(err)
	}
	means, distinct := e.tracker.Means(), 0
	for _, rule := range all {
		speed, err := e.playOut(rule, preferred)
		if err != nil {
			t.Fatal(err)
		}
		for o := range env.Objectives {
			above := e.values[rule][o] - e.values[preferred][o]
			if o == 0 {
				above = speed - base
			}
			above += means[preferred][o]
			above -= means[rule][o]
			want := float32(5 * min(max(above, -1), 1))
			if got := e.rules[rule*env.Objectives+o]; !near(float64(got), float64(want)) && !(got-want < 1e-6 && want-got < 1e-6) {
				t.Errorf("%v, %s: %v, want %v", cluster.Rules[rule], env.ObjectiveNames[o], got, want)
			}
			if want != 0 && want != 5 && want != -5 {
				distinct++
			}
		}
	}
	if distinct < 20 {
		t.Errorf("only %d values tell", distinct)
	}
}
