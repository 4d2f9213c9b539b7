package planner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
)

// invented is a random small job: at most so many layers, 8 devices of a type or 6 of two.
func invented(rng *rand.Rand, most int) (*Job, error) {
	devices := []string{"fast", "slow"}[:1+rng.IntN(2)]
	yaml := "nodes:\n"
	for _, d := range devices {
		per := []int{1, 2, 4}[rng.IntN(3)]
		count := per * (1 + rng.IntN(max(2, 4/per)))
		if len(devices) == 2 {
			count, per = min(count, 3), 1
			if rng.IntN(2) == 0 {
				count, per = 2, 2
			}
		}
		yaml += fmt.Sprintf("  - {device: %s, count: %d, per_machine: %d, memory: %d, inside: {bandwidth: %dMB/s, latency: 1ms}, link: {bandwidth: %dMB/s, latency: 2ms}}\n",
			d, count, per, 1500+rng.IntN(12000), 1+rng.IntN(50), 1+rng.IntN(9))
	}
	top, err := cluster.ReadTopology(strings.NewReader(yaml), "t", nil)
	if err != nil {
		return nil, err
	}
	p := &Profile{Model: "invented"}
	var kinds []Layer
	for range 1 + rng.IntN(3) {
		l := Layer{Parameters: float64(rng.IntN(20)), Output: float64(rng.IntN(2000))}
		for i, d := range devices {
			base := (1 + rng.Float64()) * float64(i+1) / 10
			for _, t := range []int{1, 2, 4} {
				for _, b := range []int{1, 2, 4} {
					f := base * (0.3 + float64(b)/math.Pow(float64(t), 0.8))
					l.Runs = append(l.Runs, Run{d, t, b, f, 2 * f * (0.9 + 0.2*rng.Float64()), 0.1 * base, float64(rng.IntN(50))})
				}
			}
		}
		kinds = append(kinds, l)
	}
	for i := range 2 + rng.IntN(most-1) {
		l := kinds[rng.IntN(len(kinds))]
		l.Name = fmt.Sprint("layer", i)
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("invented"); err != nil {
		return nil, err
	}
	o := Options{GlobalBatches: []int{[]int{4, 6, 8}[rng.IntN(3)]}, States: States{2, 2, 4}}
	if rng.IntN(2) == 0 {
		o.Shardings = []Sharding{[]Sharding{Replicated, Optimizer, Full}[rng.IntN(3)]}
	} else {
		o.Checkpoint = []string{"never", "always"}[rng.IntN(2)]
	}
	return NewJob(p, top, o)
}

// brute tries every plan.
type brute struct {
	*condition
	best   float64
	leaves int
}

// backwards goes on with the stage before the last `done`, which ends before layer to, with what is left of each class.
func (b *brute) backwards(left, to int, free []int, plan *Plan) {
	if left == 0 {
		if to == 0 {
			b.score(plan)
		}
		return
	}
	for from := to - 1; from >= left-1; from-- {
		if left == 1 && from > 0 {
			continue
		}
		for shape := range b.forms {
			f, rest := &b.forms[shape], append([]int{}, free...)
			stage := Stage{From: from, To: to}
			fits := true
			for _, t := range f.groups {
				first := free[t.class] - t.devices()
				rest[t.class] = first
				per := b.Topology.Classes[t.class].PerMachine
				machines := (t.devices() + per - 1) / per
				fits = fits && first >= 0 && (first+t.devices()-1)/per-first/per+1 == machines
				stage.Groups = append(stage.Groups, Group{Devices{b.devices[t.class], first, t.devices()}, t.tensor, t.shares})
			}
			if fits {
				b.layers(left, from, f, stage, rest, plan)
			}
		}
	}
}

// layers chooses a way for each layer of a stage, then goes on.
func (b *brute) layers(left, layer int, f *form, stage Stage, free []int, plan *Plan) {
	if layer == stage.To {
		plan.Stages[left-1] = stage
		b.backwards(left-1, stage.From, free, plan)
		return
	}
	for i, w := range f.ways {
		if math.IsInf(f.costs[b.alike[layer]][i].step[0], 1) {
			continue
		}
		next := stage
		next.Strategies = append(append([]Strategy{}, stage.Strategies...), Strategy{layer, layer + 1, w.tensor, w.sharding, w.checkpoint})
		b.layers(left, layer+1, f, next, free, plan)
	}
}

func (b *brute) score(plan *Plan) {
	b.leaves++
	p, err := b.Predict(plan)
	if err == nil {
		b.best = min(b.best, p.Seconds/float64(b.batch))
	} else if !errors.Is(err, ErrInfeasible) {
		panic(err)
	}
}

// bruteForce tries every plan of a job.
func bruteForce(j *Job) (best float64, leaves int) {
	best = math.Inf(1)
	for _, c := range j.conditions() {
		b := &brute{condition: c, best: math.Inf(1)}
		for of := 1; of <= len(j.Profile.Layers); of++ {
			plan := &Plan{Version: Version, GlobalBatch: c.batch, MicroBatch: c.samples, Stages: make([]Stage, of)}
			b.backwards(of, len(j.Profile.Layers), c.Pool(), plan)
		}
		best, leaves = min(best, b.best), leaves+b.leaves
	}
	return best, leaves
}

// go test ./planner -run SearchIsExact -v -jobs 1000 -layers 6 -timeout 1h
var (
	jobs   = flag.Int("jobs", 60, "jobs that TestSearchIsExact invents")
	layers = flag.Int("layers", 4, "layers that an invented job has at most")
)

func TestSearchIsExact(t *testing.T) {
	plans, infeasible := 0, 0
	for seed := range uint64(*jobs) {
		job, err := invented(rand.New(rand.NewPCG(seed, 1)), *layers)
		if errors.Is(err, ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want, leaves := bruteForce(job)
		plans += leaves
		got, err := job.Search(context.Background(), nil)
		if math.IsInf(want, 1) {
			infeasible++
			if !errors.Is(err, ErrInfeasible) {
				t.Fatalf("seed %d: %v; brute force finds no plan", seed, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v; brute force finds %v", seed, err, want)
		}
		if math.Abs(got.Best-want) > 1e-9*want || got.Best > got.Bound*(1+1e-9) {
			t.Fatalf("seed %d: %v (gap %v), brute force finds %v", seed, got.Best, got.Gap(), want)
		}
		if err := got.Plan.Validate(len(job.Profile.Layers)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d plans tried, %d jobs without one", plans, infeasible)
	if plans < 1e5 || infeasible < 1 || infeasible > *jobs/3 {
		t.Errorf("%d plans tried, %d jobs without one: not what the test is for", plans, infeasible)
	}
}
