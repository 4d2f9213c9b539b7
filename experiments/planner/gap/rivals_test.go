package main

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/planner"
)

// Small versions of what the command does with -rival, -degrees and -random: nothing beats the plan found, and no legal plan is below the bound.
func TestNothingBeats(t *testing.T) {
	j, err := alike(4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), planner.SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := opponents{within: 300 * time.Millisecond, degrees: true, random: 200}
	o.meet(j, r, 0, 0)
	if o.beaten > 0 || o.below > 0 || o.drawn < 200 {
		t.Errorf("%+v", o)
	}
}

// The rival prices a plan that it has read as the plan, and its edits find the way from a bad plan to a better one.
func TestRival(t *testing.T) {
	j, err := alike(1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), planner.SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := &rival{job: j, rng: rand.New(rand.NewPCG(1, 1)), layers: len(j.Profile.Layers), classes: []class{{"a", 4, 4}}}
	if got, want := x.price(x.read(r.Plan)), r.Plan.Predicted.Simulated; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("%v s, want %v", got, want)
	}
	legal, worst := 0, x.read(r.Plan)
	for range 400 {
		if s := x.random(r.Plan.GlobalBatch); s != nil && x.price(s) < math.Inf(1) {
			legal++
			worst = s
		}
	}
	if legal < 20 {
		t.Fatalf("%d legal plans", legal)
	}
	was := x.price(worst)
	now := was
	for range 3000 {
		next := worst.clone()
		x.edit(next)
		if p := x.price(next); p < now {
			worst, now = next, p
		}
	}
	if now > 0.8*was && now > 1.05*r.Plan.Predicted.Simulated {
		t.Errorf("from %v s to %v s alone; found %v s", was, now, r.Plan.Predicted.Simulated)
	}
}
