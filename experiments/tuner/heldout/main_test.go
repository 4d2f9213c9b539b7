package main

import (
	"strings"
	"testing"

	"evenkeel/lab/evaluation"
)

// Every suite can be set up, and its table has a row for every policy, of one cluster and of several.
func TestTable(t *testing.T) {
	for name, s := range suites {
		if name == "measured" {
			continue // needs published data
		}
		if _, err := s.config(options{suite: name, policies: "ddqn,oracle"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := suites["deadline"]
	s.seeds, s.tuneSeeds, s.rounds = 2, 1, 5
	for _, cases := range []int{1, 2} {
		config, err := s.config(options{suite: "deadline", policies: "ddqn,uniform,model,oracle"})
		if err != nil {
			t.Fatal(err)
		}
		config.Cases, config.Scenarios = config.Cases[:cases], config.Scenarios[:2]
		lines, err := evaluation.Compare(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		got := table(config, lines)
		if rows := strings.Split(strings.TrimSpace(got), "\n"); len(rows) != 6 || !strings.HasPrefix(rows[2], "| ddqn | ") || !strings.HasPrefix(rows[5], "| *oracle* | 1.0000 [") {
			t.Errorf("%d clusters:\n%s", cases, got)
		}
	}
	if _, err := s.config(options{suite: "deadline", scenario: "storms", policies: "ddqn"}); err == nil {
		t.Error("an unknown scenario was found")
	}
}
