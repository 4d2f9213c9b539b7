package planner

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEqualStages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m := rapid.IntRange(1, 8).Draw(t, "stages"), rapid.IntRange(1, 20).Draw(t, "micro-batches")
		f, b := rapid.Float64Range(0.1, 3).Draw(t, "f"), rapid.Float64Range(0.1, 3).Draw(t, "b")
		stages := make([]Timing, p)
		for i := range stages {
			stages[i] = Timing{Forward: f, Backward: b}
		}
		for _, s := range []Schedule{OneForwardOneBackward, GPipe} {
			ops, got, err := Simulate(stages, m, s)
			if err != nil {
				t.Fatal(err)
			}
			if want := float64(m+p-1) * (f + b); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("schedule %d: %v, want %v", s, got, want)
			}
			for i := range ops {
				if len(ops[i]) != 2*m {
					t.Fatalf("stage %d: %d operations", i, len(ops[i]))
				}
			}
		}
	})
}

func TestBadPipelines(t *testing.T) {
	for _, s := range [][]Timing{nil, {{Forward: -1}}, {{Backward: math.NaN()}}, {{SendNext: math.Inf(1)}}} {
		if _, _, err := Simulate(s, 2, GPipe); !errors.Is(err, ErrPipeline) {
			t.Errorf("%v: %v", s, err)
		}
	}
}
