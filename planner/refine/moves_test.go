package refine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

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

// text writes what moves change: of each stage its last layer, its groups (class, replicas, degree, samples more) and each layer's strategy.
func (d *draft) text() string {
	text := fmt.Sprintf("%d upward %v", d.micro, d.upward)
	for _, s := range d.stages {
		text += fmt.Sprintf(" | %d", s.to)
		for _, g := range s.groups {
			text += fmt.Sprintf(" %c%dx%d%+d", 'a'+g.class, g.replicas, g.tensor, g.more)
		}
		for _, y := range s.strategies {
			text += fmt.Sprintf(" %c%d", y.Sharding[0], y.Tensor)
		}
	}
	return text
}

// All that one move makes of two drafts, by hand; of plans of at least 2 stages and at most 4.
func TestMovesByHand(t *testing.T) {
	iv, err := invented.New(rand.New(rand.NewPCG(3, 25)), 9)
	if err != nil {
		t.Fatal(err)
	}
	o := costmodel.Options{GlobalBatches: []int{8}, LeastStages: 2, MostStages: 4, Checkpoint: "never", Shardings: []costmodel.Sharding{costmodel.Replicated}}
	m, err := costmodel.New(iv.Profile, iv.Topology.WithMemory(1e6), o)
	if err != nil {
		t.Fatal(err)
	}
	r := &refiner{model: m, micros: []int{1, 2, 4, 8}, memory: &memory{pool: []int{12, 4}, tensors: [][]int{{1, 2, 4}, {1, 2}}}}
	none := func(degrees ...int) (all []costmodel.Strategy) {
		for _, t := range degrees {
			all = append(all, costmodel.Strategy{Tensor: t, Sharding: costmodel.Replicated})
		}
		return all
	}
	var text strings.Builder
	for _, d := range []*draft{
		{micro: 4, stages: []part{{2, []team{{0, 3, 2, 0}}, none(0, 0)}, {4, []team{{0, 1, 4, 1}, {1, 2, 1, -1}}, none(0, 0)}}},
		{micro: 2, stages: []part{{1, []team{{0, 1, 4, 0}}, none(0)}, {3, []team{{1, 1, 2, 0}}, none(1, 0)}, {4, []team{{0, 2, 1, 0}}, none(0)}}},
	} {
		var all []string
		for _, move := range slices.Concat(r.moves(d)...) {
			if next := d.clone(); move(next) {
				all = append(all, next.text())
			}
		}
		slices.Sort(all)
		fmt.Fprintf(&text, "of %s:\n%s\n\n", d.text(), strings.Join(slices.Compact(all), "\n"))
	}
	golden.Assert(t, text.String(), "moves.golden")

	r = &refiner{known: map[*costmodel.Model]*memory{}}
	r.take(&refinement{model: m, batch: 8})
	for more := range 2 { // samples more than would finish first
		d := &draft{micro: 6, stages: []part{{len(m.Layers()), []team{{0, 1, 1, more}, {1, 1, 1, -more}}, none(make([]int, len(m.Layers()))...)}}}
		stages, ok := r.place(d)
		if !ok {
			t.Fatal("no place")
		}
		text.WriteString(fmt.Sprint(stages[0].Groups[0].Shares, stages[0].Groups[1].Shares))
	}
	if got := text.String(); !strings.HasSuffix(got, "[4] [2][5] [1]") {
		t.Errorf("shares %s", got[len(got)-14:])
	}
}

// A draft that fits memory, or is nearer to it, is better than one that is quicker; how far each device is above its memory counts.
func TestDraftsThatDoNotFit(t *testing.T) {
	if fits, quick := (&draft{price: 2}), (&draft{price: 1, over: 0.5}); !fits.beats(quick) || quick.beats(fits) {
		t.Error("a quicker plan that does not fit is better")
	}
	m, p := found(t, rand.New(rand.NewPCG(0, 25)))
	for seed := uint64(1); p == nil || len(p.Stages) < 2; seed++ {
		m, p = found(t, rand.New(rand.NewPCG(seed, 25)))
	}
	each(1, func(r *refiner, _ int) {
		small := &Plan{p.Model.WithMemory(1e-3), p.GlobalBatch, p.MicroBatch, p.Stages}
		r.take(&refinement{model: small.Model, batch: p.GlobalBatch})
		d := r.draft(small)
		stages, _ := r.place(d)
		cost, err := small.Model.Price(p.GlobalBatch, d.micro, stages)
		if err != nil {
			t.Fatal(err)
		}
		want, devices := 0.0, 0
		for _, s := range cost.Stages {
			for _, u := range s.Memory {
				want += u.Peak()/u.Limit - 1
				devices++
			}
		}
		if devices < 2 || math.Abs(d.over/want-1) > 1e-9 {
			t.Errorf("%d groups are above their memory by %v, counted %v", devices, want, d.over)
		}
		if better := Run(context.Background(), m, []Plan{*small}, func(int, int) {}); len(better) > 0 {
			t.Errorf("a plan that does not fit: %+v", better)
		}
	})
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
