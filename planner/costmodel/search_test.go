package costmodel

import (
	"context"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/planner/internal/invented"
	"evenkeel/planner/search"
)

func inventedModel(rng *rand.Rand, layers int) (*Model, error) {
	j, err := invented.New(rng, layers)
	if err != nil {
		return nil, err
	}
	if rng.IntN(3) == 0 {
		j.Selective()
		if j.Checkpoint == "never" {
			j.Checkpoint = "selective"
		}
	}
	o := Options{GlobalBatches: []int{j.GlobalBatch}, States: States{2, 2, 4}, Checkpoint: j.Checkpoint}
	if j.Sharding != "" {
		o.Shardings = []Sharding{Sharding(j.Sharding)}
	}
	if rng.IntN(2) == 0 {
		o.Calibration = Calibration{Compute: map[string]float64{"fast": 1.4}, Links: 0.5 + rng.Float64(), Activations: 1.2, Gradients: 1.5, Working: 2, Context: 400, ContextShare: 0.1, Margin: 0.02}
	}
	return New(j.Profile, j.Topology, o)
}

// brute tries every plan under a condition.
type brute struct {
	*Condition
	stages []Stage
	best   float64
	leaves int
}

// backwards goes on with the stage before the last `done`, which ends before layer to, with what is left of each class.
func (b *brute) backwards(left, to int, free []int) {
	if left == 0 {
		if to == 0 {
			b.score()
		}
		return
	}
	for from := to - 1; from >= left-1; from-- {
		if left == 1 && from > 0 {
			continue
		}
		for shape := range b.configurations {
			f, rest := &b.configurations[shape], append([]int{}, free...)
			stage := Stage{From: from, To: to}
			fits := true
			for _, g := range f.groups {
				g.First = free[g.Class] - g.Devices()
				rest[g.Class] = g.First
				per := b.topology.Classes[g.Class].PerMachine
				machines := (g.Devices() + per - 1) / per
				fits = fits && g.First >= 0 && (g.First+g.Devices()-1)/per-g.First/per+1 == machines
				stage.Groups = append(stage.Groups, g)
			}
			if fits {
				b.layers(left, from, f, stage, rest)
			}
		}
	}
}

// layers chooses a strategy for each layer of a stage, then goes on.
func (b *brute) layers(left, layer int, f *configuration, stage Stage, free []int) {
	if layer == stage.To {
		b.stages[left-1] = stage
		b.backwards(left-1, stage.From, free)
		return
	}
	for _, y := range f.strategies {
		// Not f.costs, from which the search has left some out. One replica has nothing to shard.
		n, _, _ := replicas(f.groups, b.MicroBatch, y, 0)
		if math.IsInf(b.layer(f.groups, layer, b.MicroBatch, y).step[0], 1) || n == 1 && y.Sharding != Replicated && slices.Contains(b.options.Shardings, Replicated) {
			continue
		}
		next := stage
		next.Strategies = append(append([]Strategy{}, stage.Strategies...), y)
		b.layers(left, layer+1, f, next, free)
	}
}

func (b *brute) score() {
	b.leaves++
	cost, err := b.Price(b.GlobalBatch, b.MicroBatch, b.stages)
	if err != nil {
		panic(err)
	}
	if b.fitsMemory(cost) {
		b.best = min(b.best, cost.Seconds/float64(b.GlobalBatch))
	}
}

func (b *brute) fitsMemory(cost *Cost) bool {
	for _, s := range cost.Stages {
		for _, u := range s.Memory {
			if u.Peak() > u.Limit {
				return false
			}
		}
	}
	return true
}

// bruteForce tries every plan of a model.
func bruteForce(m *Model) (best float64, leaves int) {
	best = math.Inf(1)
	for _, c := range m.Conditions() {
		b := &brute{Condition: c, best: math.Inf(1)}
		for of := 1; of <= len(m.profile.Layers); of++ {
			b.stages = make([]Stage, of)
			b.backwards(of, len(m.profile.Layers), c.Pool())
		}
		best, leaves = min(best, b.best), leaves+b.leaves
	}
	return best, leaves
}

func find(m *Model) (*search.Result, []*Condition, error) {
	conditions := m.Conditions()
	var costs []search.Costs
	for _, c := range conditions {
		costs = append(costs, c)
	}
	r, err := search.Run(context.Background(), costs, search.Options{})
	return r, conditions, err
}

// go test ./planner/costmodel -run SearchOverItsSpace -v -jobs 1000 -layers 6 -timeout 1h
var (
	jobs       = flag.Int("jobs", 60, "jobs that TestSearchOverItsSpace invents")
	mostLayers = flag.Int("layers", 4, "layers that an invented job has at most")
)

// Stages are packed, so a cheaper plan may be missed.
func TestSearchOverItsSpace(t *testing.T) {
	plans, infeasible, found, cheapest, more, most := 0, 0, 0, 0, 0.0, 1.0
	for seed := range uint64(*jobs) {
		m, err := inventedModel(rand.New(rand.NewPCG(seed, 1)), *mostLayers)
		if errors.Is(err, search.ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if seed%3 == 2 {
			m = m.Beside()
		}
		want, leaves := bruteForce(m)
		plans += leaves
		got, conditions, err := find(m)
		if math.IsInf(want, 1) {
			infeasible++
			if !errors.Is(err, search.ErrInfeasible) {
				t.Fatalf("seed %d: %v; brute force finds no plan", seed, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v; brute force finds %v", seed, err, want)
		}
		best := got.Best[0].Total
		if best < want*(1-1e-9) || got.Bound > want*(1+1e-9) {
			t.Fatalf("seed %d: %v, bound %v; brute force finds %v", seed, best, got.Bound, want)
		}
		found, most = found+1, max(most, best/want)
		if more += best/want - 1; best <= want*(1+1e-9) {
			cheapest++
		}
		// The stages cost what the search counted, or less, where a stage whose layers all have another tensor degree sends less by it.
		c := conditions[got.Best[0].Condition]
		stages := c.Stages(got.Best[0])
		cost, err := m.Price(c.GlobalBatch, c.MicroBatch, stages)
		if err != nil || cost.Seconds/float64(c.GlobalBatch) > best*(1+1e-9) || cost.Seconds/float64(c.GlobalBatch) < best*0.9 {
			t.Fatalf("seed %d: %v, %v; found for %v", seed, cost, err, best)
		}
	}
	t.Logf("%d plans tried, %d jobs without one; of %d the cheapest is found in %d, the others cost up to %.1f%% more, %.2f%% in the mean of all", plans, infeasible, found, cheapest, 100*(most-1), 100*more/float64(found))
	if cheapest < found*9/10 || more > 0.01*float64(found) {
		t.Error("plans are missed")
	}
	if plans < 1e5 || infeasible < 1 || infeasible > *jobs/3 {
		t.Errorf("%d plans tried, %d jobs without one: not what the test is for", plans, infeasible)
	}
}
