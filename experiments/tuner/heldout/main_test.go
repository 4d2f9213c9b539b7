package main

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// small is a comparison of seconds on the first so many held-out clusters.
func small(t *testing.T, cases int) evaluation.Config {
	t.Helper()
	trained, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	s := suites["deadline"]
	c := evaluation.Config{Trained: trained, Seeds: 2, TuneSeeds: 1, Rounds: 5}
	if c.Cases, err = s.cases(profile.Embedded()); err != nil {
		t.Fatal(err)
	}
	if c.Scenarios, err = s.scenarios(); err != nil {
		t.Fatal(err)
	}
	if c.Policies, err = evaluation.Find([]string{"ddqn", "uniform", "model", "oracle"}); err != nil {
		t.Fatal(err)
	}
	c.Cases, c.Scenarios = c.Cases[:cases], c.Scenarios[:2]
	return c
}

// The tables of a suite with one cluster have that cluster's rows.
func TestSummaryOfOneCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	for cases, everywhere := range map[int]string{1: "", 2: "all"} {
		c := small(t, cases)
		if everywhere == "" {
			everywhere = c.Cases[0].Name
		}
		lines, err := compare(t.Context(), "test", c, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		summary(&b, c.Scenarios, over(c.Cases), lines)
		if got := over(c.Cases); got != everywhere {
			t.Errorf("%d clusters: %q", cases, got)
		}
		for _, p := range c.Policies {
			if strings.Count(b.String(), "| "+p.Name+" |")+strings.Count(b.String(), "| *"+p.Name+"* |") != 2 {
				t.Errorf("%d clusters: no two rows of %s in\n%s", cases, p.Name, b.String())
			}
		}
	}
}

// What an interrupted comparison has kept is taken over, to the bit, and in the order of one
// comparison of all; what is kept of another is not.
func TestResume(t *testing.T) {
	t.Chdir(t.TempDir())
	c := small(t, 2)
	whole, err := evaluation.Compare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := c
	first.Scenarios = c.Scenarios[:1]
	if _, err := compare(ctx, "test", first, nil, false); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := compare(ctx, "test", c, nil, true); err == nil {
		t.Fatal("the second scenario ran without a context")
	}
	got, err := compare(t.Context(), "test", c, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, whole) {
		t.Errorf("%+v\nwant %+v", got, whole)
	}
	begun := time.Now()
	if _, err := compare(ctx, "test", c, nil, true); err != nil {
		t.Errorf("all is kept, and yet: %v after %v", err, time.Since(begun))
	}
	c.Rounds++
	if _, err := compare(ctx, "test", c, nil, true); err == nil {
		t.Error("results of other rounds were taken over")
	}
}

// The agent's own rules are not called baselines, however good they are.
func TestSummaryTellsOwnRulesFromBaselines(t *testing.T) {
	line := func(policy string, progress float64) evaluation.Result {
		return evaluation.Restore([]evaluation.Kept{{Result: evaluation.Result{Cluster: "all", Scenario: "s", Policy: policy, Progress: progress}, Ratios: []float64{progress}}})[0]
	}
	lines := []evaluation.Result{line("ddqn", 1.03), line("waterfill", 1.01), line("model", 1.02), line("model-losses", 1.04)}
	var with, without strings.Builder
	summary(&with, []evaluation.Scenario{{Name: "s"}}, "all", lines)
	summary(&without, []evaluation.Scenario{{Name: "s"}}, "all", slices.Delete(lines, 1, 2))
	if !strings.Contains(with.String(), "Best tuned baseline: waterfill, 1.0100") || strings.Contains(with.String(), "no other system") {
		t.Error(with.String())
	}
	if !strings.Contains(without.String(), "no other system: the agent's own fallback rule, with who takes part by constants: model-losses, 1.0400") || strings.Contains(without.String(), "Best tuned") {
		t.Error(without.String())
	}
}
