package execute

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/planner/pipeline"
)

// Where transfers take no time, the prediction is the planner's simulation and the longest update. Where they do, it lies between that and
// the planner's, in which stages wait for transfers.
func TestPredict(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := rapid.IntRange(1, 9).Draw(r, "micro-batches")
		second := rapid.Float64Range(0, 3)
		var stages []stageTimes
		var timed, free []pipeline.Timing
		send, update := []float64{0}, 0.0
		for i := range rapid.IntRange(1, 5).Draw(r, "stages") {
			s := stageTimes{pipeline.Timing{Forward: second.Draw(r, "forward"), Backward: second.Draw(r, "backward")}, second.Draw(r, "update")}
			stages, free, update = append(stages, s), append(free, s.Timing), max(update, s.Update)
			if i > 0 {
				send = append(send, second.Draw(r, "send"))
				timed[i-1].SendNext = send[i]
			}
			timed = append(timed, s.Timing)
		}
		predicted := func(send []float64) float64 {
			v, err := predict(stages, send, m)
			if err != nil {
				r.Fatal(err)
			}
			return v - update
		}
		orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, len(stages), 1, m)
		if err != nil {
			r.Fatal(err)
		}
		_, least, err := pipeline.Simulate(free, orders, false)
		if err != nil {
			r.Fatal(err)
		}
		if got := predicted(make([]float64, len(stages))); math.Abs(got-least) > 1e-9 {
			r.Fatalf("%v; the planner's is %v", got, least)
		}
		_, most, err := pipeline.Simulate(timed, orders, false)
		if err != nil {
			r.Fatal(err)
		}
		if got := predicted(send); got < least-1e-9 || got > most+1e-9 {
			r.Fatalf("%v; want %v to %v", got, least, most)
		}
	})
	// Forward in 1, 10, 1; back in 2, 10, 2; the longer update in 4.
	stages := []stageTimes{{pipeline.Timing{Forward: 1, Backward: 2}, 4}, {pipeline.Timing{Forward: 1, Backward: 2}, 3}}
	if got, err := predict(stages, []float64{0, 10}, 1); err != nil || got != 30 {
		t.Errorf("%v, %v; want 30", got, err)
	}
	for _, bad := range []pipeline.Timing{{Forward: math.NaN()}, {Backward: -1}, {Backward: math.Inf(1)}} {
		if v, err := predict([]stageTimes{{Timing: bad}}, []float64{0}, 1); err == nil {
			t.Errorf("%v: %v", bad, v)
		}
	}
}
