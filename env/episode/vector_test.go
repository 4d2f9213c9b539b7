package episode

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"evenkeel/env"
	"evenkeel/env/internal/envtest"
)

func TestStepAllEqualsOneByOne(t *testing.T) {
	defer goleak.VerifyNone(t)
	build := func() (envs []*Episode, actions [][]int) {
		for seed := range uint64(7) {
			e, err := New(Config{Cluster: envtest.Mixed(t, 4+int(seed)), Conditions: envtest.Preset(t, "bursts"), Seed: seed, Rounds: 50})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Reset(); err != nil {
				t.Fatal(err)
			}
			envs = append(envs, e)
			actions = append(actions, make([]int, e.Size()))
		}
		return envs, actions
	}
	together, actions := build()
	alone, _ := build()
	for round := range 20 {
		for k := range actions {
			for i := range actions[k] {
				actions[k][i] = (round + 3*k + i) % len(env.Actions)
			}
		}
		steps, err := StepAll(together, actions)
		if err != nil {
			t.Fatal(err)
		}
		for k, e := range alone {
			want, err := e.Step(actions[k])
			if err != nil {
				t.Fatal(err)
			}
			if got := steps[k]; got.Kind != want.Kind || got.Reward != want.Reward || !slices.Equal(got.Nodes, want.Nodes) {
				t.Fatalf("round %d, environment %d: %+v, alone %+v", round, k, got, want)
			}
		}
	}
	actions[3] = nil
	if _, err := StepAll(together, actions); err == nil || errors.Is(err, errOver) {
		t.Errorf("wrong number of actions: %v", err)
	}
}
