package pipeline

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// simulate1F1B simulates so many micro-batches by 1F1B.
func simulate1F1B(stages []Timing, microBatches int) ([][]Operation, float64, error) {
	orders, err := Orders(OneForwardOneBackward, len(stages), 1, microBatches)
	if err != nil {
		return nil, 0, err
	}
	return Simulate(stages, orders, false)
}

func TestEqualStages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m := rapid.IntRange(1, 8).Draw(t, "stages"), rapid.IntRange(1, 20).Draw(t, "micro-batches")
		f, b := rapid.Float64Range(0.1, 3).Draw(t, "f"), rapid.Float64Range(0.1, 3).Draw(t, "b")
		stages := make([]Timing, p)
		for i := range stages {
			stages[i] = Timing{Forward: f, Backward: b}
		}
		ops, got, err := simulate1F1B(stages, m)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(m+p-1) * (f + b); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range ops {
			if len(ops[i]) != 2*m {
				t.Fatalf("stage %d: %d operations", i, len(ops[i]))
			}
		}
	})
}

func TestBadPipelines(t *testing.T) {
	for _, s := range [][]Timing{nil, {{Forward: -1}}, {{Backward: math.NaN()}}, {{SendNext: math.Inf(1)}}} {
		if _, _, err := Simulate(s, nil, false); !errors.Is(err, ErrPipeline) {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// The last stage sends to none: its SendNext does not count. By hand: two stages, each of whose passes wait for half a second of transfer.
func TestLastSendsToNone(t *testing.T) {
	want, seconds, err := simulate1F1B([]Timing{{Forward: 1, Backward: 2, SendNext: 0.5}, {Forward: 1, Backward: 2, SendNext: 0}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	got, length, err := simulate1F1B([]Timing{{Forward: 1, Backward: 2, SendNext: 0.5}, {Forward: 1, Backward: 2, SendNext: 7}}, 3)
	if err != nil || length != seconds || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, %v s, %v; want %v, %v s", got, length, err, want, seconds)
	}
}

// No stage holds more micro-batches than InFlight says.
func TestOrder(t *testing.T) {
	for stages := 1; stages < 5; stages++ {
		for m := 1; m < 7; m++ {
			orders, err := Orders(OneForwardOneBackward, stages, 1, m)
			if err != nil {
				t.Fatal(err)
			}
			for s := range stages {
				held, most := 0, 0
				for _, op := range orders[s] {
					if op.Backward {
						held--
					} else {
						held++
					}
					most = max(most, held)
				}
				if most != InFlight(s, stages, m) {
					t.Errorf("stage %d of %d holds %d of %d micro-batches, not %d", s, stages, most, m, InFlight(s, stages, m))
				}
			}
		}
	}
}
