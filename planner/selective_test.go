package planner

import (
	"context"
	"math"
	"testing"

	"evenkeel/planner/bound"
)

// Where memory is short, what is recomputed in part costs the bound no more than that takes: both layers of 100 MB a sample, of which 60 MB
// are freed for a hundredth of a second, fit in 150 MB, and 8 samples take 16.16 s.
func TestLowerBoundCountsSelective(t *testing.T) {
	j := handJob(t, "nodes:\n  - {device: a, count: 1, memory: 150MB}\n", 8, Options{}, 1, 1)
	for i := range j.Profile.Layers {
		for k := range j.Profile.Layers[i].Runs {
			r := &j.Profile.Layers[i].Runs[k]
			r.Activation, r.Freed, r.Selective = 100e6, 60e6, 0.01*float64(r.MicroBatch)
		}
	}
	j, err := NewJob(j.Profile, j.topology, j.options)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), SearchOptions{Bound: true})
	if err != nil || math.Abs(r.Plan.Predicted.Simulated-16.16) > 1e-6 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := bound.Lower(context.Background(), j.model, 8, 20); got < 16-1e-6 || got > 16.16 {
		t.Errorf("%v, by hand 16 to 16.16", got)
	}
}
