package planner

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// By hand: 12 s for 10 samples are 1.2 s each, a fifth above the bound.
func TestGap(t *testing.T) {
	r := &Result{Plan: &Plan{GlobalBatch: 10, Predicted: &Prediction{Seconds: 12}}, Bound: 1}
	if got := r.Gap(); math.Abs(got-0.2) > 1e-12 {
		t.Errorf("gap %v", got)
	}
	r.Bound = 1.3
	if got := r.Gap(); got != 0 {
		t.Errorf("gap %v below the bound", got)
	}
}

// Of 2 samples, in micro-batches of 1, two devices of which the second waits for the first: by hand.
func TestIdle(t *testing.T) {
	p := &Plan{GlobalBatch: 2, MicroBatch: 1, Stages: []Stage{{Groups: []Group{{Devices: Devices{Count: 2}}}}, {Groups: []Group{{Devices: Devices{Count: 1}}}}}}
	r := &Prediction{Simulated: 10, Stages: []StageCost{{Forward: 1, Backward: 2, Sync: 1}, {Forward: 1, Backward: 1, Update: 1}}}
	setIdle(p, r)
	// Busy: 2 devices for 2 x 3 + 1 s, one for 2 x 2 + 1; of 3 x 10 s.
	if want := 1 - (14.0+5)/30; math.Abs(r.Idle-want) > 1e-12 {
		t.Errorf("idle %v, want %v", r.Idle, want)
	}
}

func TestNoPlan(t *testing.T) {
	profile, topology, err := Example()
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"replicas [7] times micro-batch (any) must divide the global batch [64]": {GlobalBatches: []int{64}, Replicas: []int{7}},
		"memory is too small; with 3 times":                                      {GlobalBatches: []int{64}, Replicas: []int{1}, MostStages: 1, Shardings: []Sharding{Replicated}, Memory: 0.03},
	} {
		job, err := NewJob(profile, topology, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Search(t.Context(), SearchOptions{}); !errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A search that is ended once it has a plan refines that a little: on a hand of unequal devices, further than the dynamic programming goes.
func TestEndedSearch(t *testing.T) {
	o := Options{Checkpoint: "never", Shardings: []Sharding{Replicated}, LeastStages: 2}
	j := handJob(t, "nodes:\n  - {device: a, count: 1, memory: 1GiB}\n  - {device: b, count: 2, memory: 1GiB}\n", 8, o, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	var phases []string
	whole, err := j.Search(t.Context(), SearchOptions{Bound: true, Progress: func(doing string, _, _ int) {
		if n := len(phases); n == 0 || phases[n-1] != doing {
			phases = append(phases, doing)
		}
	}})
	if err != nil || !slices.Equal(phases, []string{"searching", "refining", "bounding"}) {
		t.Fatal(phases, err)
	}
	plain, err := j.Search(t.Context(), SearchOptions{Unrefined: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, err := j.Search(ctx, SearchOptions{Bound: true, Progress: func(doing string, done, steps int) {
		if doing == "searching" && 2*done > steps { // every condition has a plan
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := whole.Plan.perSample(), ended.Plan.perSample(), plain.Plan.perSample(); !(a <= b && b < 1.01*a && b < 0.99*c) || ended.LowerBound > a {
		t.Errorf("whole %v, ended %v, plain %v s a sample; bound %v", a, b, c, ended.LowerBound)
	}
}
