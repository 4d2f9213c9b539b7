package planner

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
)

// Whatever random steps make of a plan is refused, or it is a plan within the options that the job predicts as it was priced. Steps do not
// change the draft that they began from.
func TestStepsMakePlans(t *testing.T) {
	plans := 0
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 25))
		j := inventedJob(t, rng, 9, 3)
		if j == nil {
			continue
		}
		found, err := j.Search(context.Background(), SearchOptions{unbounded: true})
		if err != nil {
			continue
		}
		batch := found.Plan.GlobalBatch
		j.refineEach(1, func(r *refiner, _ int) {
			r.take(&refinement{job: j, rng: rng, batch: batch})
			d := r.draft(found.Plan)
			r.upward = seed%2 == 0
			for range 400 {
				next := d.clone()
				if price := d.price; !r.step(next) {
					if r.value(d); d.price != price {
						t.Fatalf("seed %d: a step that was not made changed %v to %v", seed, price, d.price)
					}
					continue
				}
				if r.value(next); math.IsInf(next.price, 1) {
					continue
				}
				d = next
				stages, _ := r.place(d)
				p := j.planOf(j.model.Spread(), batch, d.micro, stages)
				got, err := j.Predict(p)
				if err != nil || math.Abs(got.Simulated/d.price-1) > 1e-9 {
					t.Fatalf("seed %d: %v s, predicted %+v, %v: %+v", seed, d.price, got, err, p)
				}
				if !j.allows(p) || len(p.Stages) > 3 {
					t.Fatalf("seed %d: not within the options: %+v", seed, p)
				}
				covered(t, j, p)
				plans++
			}
			d = r.draft(found.Plan)
			for range 8 {
				if end := r.wander(context.Background(), d, 40); end.price > d.price {
					t.Fatalf("seed %d: a walk from %v s ends at %v s", seed, d.price, end.price)
				}
			}
		})
	}
	if plans < 1000 {
		t.Errorf("only %d plans", plans)
	}
}

// The outcome does not hang on how many processors refine.
func TestRefineOnOneProcessor(t *testing.T) {
	j := inventedJob(t, rand.New(rand.NewPCG(3, 25)), 9, 0)
	many, err := j.Search(context.Background(), SearchOptions{unbounded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one, err := j.Search(context.Background(), SearchOptions{unbounded: true})
	if err != nil || !reflect.DeepEqual(one.Plan, many.Plan) {
		t.Errorf("%+v, %v; on several %+v", one, err, many.Plan)
	}
}
