package execute

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// Where transfers take no time, it is the planner's simulation; where they do, it lies between that and theirs, in which
// stages wait for them.
func TestSimulate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := rapid.IntRange(1, 9).Draw(r, "micro-batches")
		second := rapid.Float64Range(0, 3)
		var stages, free []pipeline.Timing
		for range rapid.IntRange(1, 5).Draw(r, "stages") {
			s := pipeline.Timing{Forward: second.Draw(r, "forward"), Backward: second.Draw(r, "backward"), SendNext: second.Draw(r, "send")}
			stages, free = append(stages, s), append(free, pipeline.Timing{Forward: s.Forward, Backward: s.Backward})
		}
		simulate := func(s []pipeline.Timing) float64 {
			v, err := Simulate(s, m)
			if err != nil {
				r.Fatal(err)
			}
			return v
		}
		orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, len(stages), 1, m)
		if err != nil {
			r.Fatal(err)
		}
		_, least, err := pipeline.Simulate(free, orders, false)
		if err != nil {
			r.Fatal(err)
		}
		if got := simulate(free); math.Abs(got-least) > 1e-9 {
			r.Fatalf("%v; the planner's is %v", got, least)
		}
		_, most, err := pipeline.Simulate(stages, orders, false)
		if err != nil {
			r.Fatal(err)
		}
		if got := simulate(stages); got < least-1e-9 || got > most+1e-9 {
			r.Fatalf("%v; want %v to %v", got, least, most)
		}
	})
	// There in 1, 10, 1; back in 2, 10, 2.
	if got, err := Simulate([]pipeline.Timing{{Forward: 1, Backward: 2, SendNext: 10}, {Forward: 1, Backward: 2}}, 1); err != nil || got != 26 {
		t.Errorf("%v, %v; want 26", got, err)
	}
	for _, bad := range [][]pipeline.Timing{{}, {{Forward: math.NaN()}}, {{Backward: -1}}, {{SendNext: math.Inf(1)}}} {
		if v, err := Simulate(bad, 1); !errors.Is(err, pipeline.ErrPipeline) {
			t.Errorf("%v: %v, %v", bad, v, err)
		}
	}
}
