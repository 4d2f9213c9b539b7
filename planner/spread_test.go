package planner

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/internal/slow"
	"evenkeel/planner/bound"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/internal/invented"
)

// Of random jobs whose layers say what contexts and experts cost, a search finds no longer plans than the searches for each degree alone do,
// and the bound, from an incumbent that is ten times too long, lies below all of them.
func TestSearchesAllSpreads(t *testing.T) {
	slow.Skip(t)
	found := map[string]int{}
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 71))
		v, err := invented.New(rng, 5)
		if err != nil {
			t.Fatal(err)
		}
		v.Spread()
		for i := range v.Profile.Layers { // in some jobs exchange takes long
			if l := &v.Profile.Layers[i]; seed%3 > 0 {
				l.Parameters, l.ExpertParameters = 1e4*l.Parameters, 1e4*l.ExpertParameters
			}
		}
		batch := v.GlobalBatch
		if seed%3 == 0 {
			batch = 1 // of which replicas divide the sequence alone
		}
		o := Options{GlobalBatches: []int{batch}, Sequence: seed%2 == 0}
		if seed%3 > 0 {
			o.Contexts, o.Tensors, o.MostStages = []int{1}, []int{1}, 1
		}
		job, err := NewJob(v.Profile, v.Topology.WithMemory(1e5), o)
		if err != nil {
			continue
		}
		r, err := job.Search(context.Background(), SearchOptions{Bound: true})
		if err != nil {
			continue
		}
		best := r.Plan.Predicted.Simulated
		switch {
		case r.Plan.Context > 1:
			found["context"]++
		case r.Plan.Experts > 1:
			found["experts"]++
		}
		if limit := bound.Lower(context.Background(), job.model, batch, 10*best); limit > best*(1+1e-9) {
			t.Errorf("seed %d: bound %v, a plan of %v: %+v", seed, limit, best, r.Plan)
		}
		if limit := bound.Work(job.model, batch); limit > best*(1+1e-9) {
			t.Errorf("seed %d: bound by work %v, a plan of %v", seed, limit, best)
		}
		for _, s := range job.model.Spreads() {
			alone := o
			alone.Contexts, alone.Experts = []int{s.Context}, []int{s.Experts}
			k, err := NewJob(v.Profile, v.Topology.WithMemory(1e5), alone)
			if err != nil {
				t.Fatalf("seed %d, %+v: %v", seed, s, err)
			}
			one, err := k.Search(context.Background(), SearchOptions{Bound: true})
			if err == nil && (one.Plan.spread() != s || one.Plan.Predicted.Simulated < best*0.99) {
				t.Errorf("seed %d: %+v takes %v, found was %v", seed, s, one.Plan.Predicted.Simulated, best)
			}
			found["alone"]++
		}
		p, err := job.Predict(r.Plan)
		if err != nil || math.Abs(p.Simulated/best-1) > 1e-12 {
			t.Errorf("seed %d: %v, %v", seed, p, err)
		}
	}
	if found["context"] < 3 || found["experts"] < 3 || found["alone"] < 20 {
		t.Errorf("found %v: the test sees too little", found)
	}
}

// A plan of a spread names its devices, not units, and what is left over.
func TestPlanOfUnits(t *testing.T) {
	j := handJob(t, "nodes:\n  - {device: a, count: 8, per_machine: 4, memory: 1GiB}\n", 8, Options{}, 1, 1)
	p := j.planOf(costmodel.Spread{Context: 2, Experts: 1}, 8, 2, []costmodel.Stage{{To: 2, Groups: []costmodel.Group{{First: 1, Replicas: 2, Tensor: 1, Shares: []int{1, 1}}}, Strategies: []costmodel.Strategy{{Sharding: Replicated}, {Sharding: Replicated}}}})
	g := p.Stages[0].Groups[0]
	if p.Context != 2 || p.Experts != 0 || g.First != 2 || g.Count != 4 || p.Replica(g) != 2 || len(p.Unused) != 2 || p.Unused[0].Count != 2 || p.Unused[1].First != 6 || p.Unused[1].Count != 2 {
		t.Errorf("%+v", p)
	}
}

// Four replicas do not divide a batch of 6 equally, so that no preset condition has four. Two replicas of two devices whose layer has tensor degree 1
// are four with shares of 2, 2, 1 and 1.
func TestExpertsOnUnequalReplicas(t *testing.T) {
	j := handJob(t, "nodes:\n  - {device: a, count: 4, per_machine: 4, memory: 1GiB}\n", 6, Options{}, 1)
	l := &j.Profile.Layers[0]
	l.Parameters, l.Experts, l.ExpertParameters, l.ExpertBytes = 8, 4, 4, 1
	j, err := NewJob(j.Profile, j.topology, Options{GlobalBatches: []int{6}, Experts: []int{4}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), SearchOptions{Bound: true})
	if err != nil || r.Plan.Experts != 4 || !slices.Equal(r.Plan.Stages[0].Groups[0].MicroBatches, []int{2, 2, 1, 1}) {
		t.Errorf("%+v, %v", r, err)
	}
}
