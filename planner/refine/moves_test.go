package refine

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/planner/costmodel"
	"evenkeel/planner/internal/invented"
	"evenkeel/planner/search"
)

// found is a random job's model, and the plan that the dynamic programming finds; nil: none.
func found(t *testing.T, rng *rand.Rand) (*costmodel.Model, *Plan) {
	t.Helper()
	iv, err := invented.New(rng, 9)
	if err != nil {
		t.Fatal(err)
	}
	o := costmodel.Options{GlobalBatches: []int{iv.GlobalBatch}, Checkpoint: iv.Checkpoint, MostStages: 3, States: costmodel.States{Weights: 2, Gradients: 2, Optimizer: 4}}
	if iv.Sharding != "" {
		o.Shardings = []costmodel.Sharding{costmodel.Sharding(iv.Sharding)}
	}
	m, err := costmodel.New(iv.Profile, iv.Topology, o)
	if err != nil {
		return nil, nil // a layer is larger than every device
	}
	conditions := m.Conditions()
	var all []search.Costs
	for _, c := range conditions {
		all = append(all, c)
	}
	r, err := search.Run(context.Background(), all, search.Options{})
	if err != nil {
		return nil, nil
	}
	c := conditions[r.Best[0].Condition]
	return m, &Plan{Model: m.In(c.Spread()), GlobalBatch: c.GlobalBatch, MicroBatch: c.MicroBatch, Stages: c.Stages(r.Best[0])}
}

// legal says whether stages take each device once, in whole replicas within machines, shares sum up to the micro-batch, and strategies keep to
// the options.
func legal(m *costmodel.Model, micro int, stages []costmodel.Stage) bool {
	type device struct{ class, number int }
	taken, o := map[device]bool{}, m.Choices()
	for i, s := range stages {
		samples := 0
		for _, g := range s.Groups {
			per := m.Classes()[g.Class].PerMachine
			for d := range g.Devices() {
				k := device{g.Class, g.First + d}
				if taken[k] || k.number >= m.Classes()[g.Class].Count {
					return false
				}
				taken[k] = true
			}
			if !costmodel.Within(g.First, g.Devices(), g.Tensor, per) || len(g.Shares) != g.Replicas || slices.Min(g.Shares) < 1 {
				return false
			}
			for _, n := range g.Shares {
				samples += n
			}
		}
		for _, y := range s.Strategies {
			if !slices.Contains(o.Shardings, y.Sharding) || o.Checkpoint == "never" && (y.Checkpoint || y.Selective) || o.Checkpoint == "always" && !y.Checkpoint {
				return false
			}
		}
		if samples != micro || len(s.Strategies) != s.To-s.From || i > 0 && s.From != stages[i-1].To {
			return false
		}
	}
	return len(stages) <= 3 && stages[len(stages)-1].To == len(m.Layers())
}

// Whatever random moves make of a plan is refused, or it is a plan within the options that costs what the move was priced at. Moves do not
// change the draft that they began from.
func TestMovesMakePlans(t *testing.T) {
	plans := 0
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 25))
		m, p := found(t, rng)
		if m == nil {
			continue
		}
		each(1, func(r *refiner, _ int) {
			r.take(&refinement{model: p.Model, rng: rng, batch: p.GlobalBatch})
			d := r.draft(p)
			d.upward = seed%2 == 0
			r.value(d)
			for range 400 {
				next := d.clone()
				moves := slices.Concat(r.moves(d)...)
				if price := d.price; !moves[rng.IntN(len(moves))](next) {
					if r.value(d); d.price != price {
						t.Fatalf("seed %d: a move that was not made changed %v to %v", seed, price, d.price)
					}
					continue
				}
				if r.value(next); math.IsInf(next.price, 1) {
					continue
				}
				d = next
				stages, _ := r.place(d)
				cost, err := p.Model.Price(p.GlobalBatch, d.micro, stages)
				if err != nil {
					t.Fatalf("seed %d: %v: %+v", seed, err, stages)
				}
				got, err := cost.Simulated(p.GlobalBatch / d.micro)
				if err != nil || got != d.price || !legal(p.Model, d.micro, stages) {
					t.Fatalf("seed %d: %v s, simulated %v, %v: %+v", seed, d.price, got, err, stages)
				}
				plans++
			}
		})
	}
	if plans < 1000 {
		t.Errorf("only %d plans", plans)
	}
}

// Devices come and go as whole replicas, in at most MaxGroups groups.
func TestGiveAndDropByHand(t *testing.T) {
	r := &refiner{memory: &memory{tensors: make([][]int, costmodel.MaxGroups+1)}}
	s := &part{groups: []team{{0, 2, 2, 0}}}
	for class := 1; class < costmodel.MaxGroups; class++ {
		if !r.give(s, class, 2, 1) {
			t.Fatal("no room for a group")
		}
	}
	if r.give(s, costmodel.MaxGroups, 2, 1) || r.give(s, 0, 3, 1) || !r.give(s, 0, 4, 1) || s.groups[0] != (team{0, 4, 2, 0}) {
		t.Error(s.groups)
	}
	if r.drop(s, 0, 3) || !r.drop(s, 0, 6) || s.groups[0] != (team{0, 1, 2, 0}) || !r.drop(s, 0, 2) || len(s.groups) != costmodel.MaxGroups-1 {
		t.Error(s.groups)
	}
	if one := (&part{groups: []team{{0, 1, 2, 0}}}); r.drop(one, 0, 2) || r.give(one, 1, 3, 2) {
		t.Error(one.groups)
	}
}
