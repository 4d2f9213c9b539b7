package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/planner"
)

// Small versions of what the command does with -rival and -degrees: nothing beats the plan found, and no legal plan is below the bound.
func TestNothingBeats(t *testing.T) {
	j, err := alike(4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), planner.SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := opponents{within: 300 * time.Millisecond, degrees: true}
	o.meet(j, r, 0, 0)
	legal, least := newRival(j, 0).draw(r.Plan, 200)
	if o.beaten > 0 || legal < 200 || least < r.LowerBound*float64(r.Plan.GlobalBatch)*(1-1e-9) {
		t.Errorf("%+v; %d legal plans, the quickest takes %v s", o, legal, least)
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
	x := newRival(j, 1)
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

// draw is how many of so many plans were legal, half of them drawn at random and half the best with a few edits, and the time of the quickest.
func (r *rival) draw(best *planner.Plan, want int) (legal int, least float64) {
	least = math.Inf(1)
	for i := 0; i < 60*want && legal < want; i++ {
		s := r.random(best.GlobalBatch)
		if i%2 == 0 {
			s = r.read(best)
			for range 1 + r.rng.IntN(4) {
				r.edit(s)
			}
		}
		if s == nil {
			continue
		}
		if x := r.price(s); !math.IsInf(x, 1) {
			legal++
			least = min(least, x)
		}
	}
	return legal, least
}

// random is a plan drawn at random.
func (r *rival) random(global int) *sketch {
	s := &sketch{global: global, micro: 1 << r.rng.IntN(9)}
	for global%s.micro != 0 {
		s.micro /= 2
	}
	left := make([]int, len(r.classes))
	for c, k := range r.classes {
		left[c] = k.count
	}
	for at := 0; at < len(r.job.Profile.Layers); {
		x := sketchStage{layers: 1 + r.rng.IntN(len(r.job.Profile.Layers)-at)}
		at += x.layers
		for c := range left {
			if left[c] > 0 && (r.rng.IntN(len(left)) == 0 || at == len(r.job.Profile.Layers)) {
				n := 1 + r.rng.IntN(left[c])
				left[c] -= n
				x.add(c, n, 1<<r.rng.IntN(4))
			}
		}
		if len(x.groups) == 0 {
			return nil
		}
		x.deal(s.micro)
		y := planner.Strategy{Sharding: []planner.Sharding{planner.Replicated, planner.Optimizer, planner.Gradients, planner.Full}[r.rng.IntN(4)], Checkpoint: r.rng.IntN(2) == 0}
		x.each = slices.Repeat([]planner.Strategy{y}, x.layers)
		s.stages = append(s.stages, x)
	}
	return s
}
