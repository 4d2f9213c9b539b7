package planner

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"evenkeel/planner/costmodel"
)

// Costs that are remembered are those of the model, whatever was priced before.
func TestPricer(t *testing.T) {
	priced := 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 24))
		j := inventedJob(t, rng, 7, 0)
		if j == nil {
			continue
		}
		batch := j.options.GlobalBatches[0]
		pricer := j.model.Pricer()
		var plans []*Plan
		for len(plans) < 400 {
			p := randomPlan(rng, j, batch)
			if n := len(plans); n > 0 && rng.IntN(4) > 0 {
				p = edited(rng, j, plans[rng.IntN(n)])
			}
			if p.Validate(len(j.Profile.Layers)) == nil {
				plans = append(plans, p)
			}
		}
		for _, p := range plans {
			var stages []costmodel.Stage
			for i := range p.Stages {
				if s, err := j.stage(&p.Stages[i], ""); err == nil {
					stages = append(stages, s)
				}
			}
			if len(stages) < len(p.Stages) {
				continue
			}
			// The same stages with fewer after them, and a device further on.
			further := slices.Clone(stages)
			for i := range further {
				further[i].Groups = slices.Clone(further[i].Groups)
				for g := range further[i].Groups {
					further[i].Groups[g].First++
				}
			}
			for _, stages := range [][]costmodel.Stage{stages, stages[:(len(stages)+1)/2], further} {
				want, err := j.model.Price(batch, p.MicroBatch, stages)
				got, other := pricer.Price(batch, p.MicroBatch, stages)
				if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(other, err) {
					t.Fatalf("seed %d: %+v, %v; want %+v, %v", seed, got, other, want, err)
				}
				if err == nil {
					priced++
				}
			}
		}
	}
	if priced < 500 {
		t.Errorf("only %d plans have a price", priced)
	}
}
