package planner_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/planner"
)

var (
	bruteJobs   = flag.Int("brute-jobs", 0, "random jobs of which every plan is tried; 0: those whose quickest plans are hardest to find")
	bruteFirst  = flag.Int("brute-first", 0, "number of the first of them")
	machineJobs = flag.Int("machine-jobs", 6, "random jobs over small machines of which every plan is tried")
)

// bruteJob draws a job of up to 4 layers on up to 6 devices of up to 3 classes, whose computing and exchange take about as long.
func bruteJob(rng *rand.Rand) *twinCase {
	c := &twinCase{Options: twinOptions{Memory: 1, Compute: 1.1256, Communication: 1.1256, W: 2, G: 2, O: 12, Links: 1, Activations: 1, Gradients: 1, Working: 1}}
	level := func() twinLevel {
		return twinLevel{Latency: math.Round(twinScale(rng, 1e3, 3e6)) * 1e-9, Rates: []twinRate{{1, 1e6 * math.Round(twinScale(rng, 300, 3e4))}}}
	}
	left := 6
	names := []string{"a100", "h200", "l4"}
	for i := range 1 + rng.IntN(3) {
		if left == 0 {
			break
		}
		count := 1 + rng.IntN(left)
		per := 1 + rng.IntN(count)
		for count%per != 0 {
			per--
		}
		left -= count
		c.Cluster.Classes = append(c.Cluster.Classes, twinClass{Device: names[i], Count: count, PerMachine: per, Slow: 1, Inside: level(), Link: level(), Switch: -1})
	}
	c.Plan.GlobalBatch = twinPick(rng, 2, 4, 6, 8, 12)
	bytes, scale := 0.0, twinScale(rng, 1e-3, 3e-2) // of the model; seconds
	for i := range 1 + rng.IntN(4) {
		if i > 0 && twinChance(rng, 0.3) {
			c.Layers = append(c.Layers, c.Layers[i-1])
		} else {
			l := twinLayer{Parameters: math.Round(twinScale(rng, 1e4, 3e7)), Output: math.Round(twinScale(rng, 1e3, 1e7)), Runs: map[twinKey][]twinRun{}}
			base, activation := scale*twinScale(rng, 0.3, 3), twinScale(rng, 1e5, 1e8)
			for class, k := range c.Cluster.Classes {
				slow := base * []float64{1, 2.3, 1.6}[class]
				for t := 1; t <= k.PerMachine; t++ {
					if k.PerMachine%t != 0 {
						continue
					}
					for _, n := range []int{1, 2, 4, 12} {
						f := slow * (0.2 + float64(n)*(0.9+0.2*rng.Float64())/math.Pow(float64(t), 0.85))
						l.Runs[twinKey{class, t, 1}] = append(l.Runs[twinKey{class, t, 1}], twinRun{MicroBatch: n, Forward: f, Backward: 2 * f * (0.9 + 0.2*rng.Float64()), Update: l.Parameters / float64(t) * 2e-11 * slow / base, Activation: math.Round(activation / float64(t))})
					}
				}
			}
			c.Layers = append(c.Layers, l)
		}
		l := &c.Layers[i]
		bytes += 16*l.Parameters + 2*l.Runs[twinKey{0, 1, 1}][0].Activation
	}
	for i := range c.Cluster.Classes {
		c.Cluster.Classes[i].Memory = math.Round(bytes * twinScale(rng, 0.15, 4))
	}
	return c
}

// job is the case's files as a job of the planner.
func (c *twinCase) job() (*planner.Job, error) {
	c.Plan = twinPlan{GlobalBatch: c.Plan.GlobalBatch}
	return c.newJob()
}

// No plan that plan check accepts takes less than the bound, and few jobs have a quicker plan than the one found.
func TestEveryPlanOfSmallJobs(t *testing.T) {
	jobs, beaten, worst, simulated := 0, 0, 1.0, 0
	ratio, bounded := 0.0, 0
	ways := map[string]int{} // in which the plans found spread layers
	seeds := []uint64{1, 7, 67, 95, 147, 291, 315, 878}
	if *bruteJobs > 0 {
		seeds = nil
		for i := range *bruteJobs {
			seeds = append(seeds, uint64(*bruteFirst+i))
		}
	}
	for _, seed := range seeds {
		c := bruteJob(rand.New(rand.NewPCG(seed, 51)))
		if seed%2 == 1 {
			c.tieWeights(rand.New(rand.NewPCG(seed, 53)))
		}
		if seed%3 == 1 {
			c.selectively(rand.New(rand.NewPCG(seed, 54)))
		}
		if seed%4 > 1 {
			c.bruteSpread(rand.New(rand.NewPCG(seed, 55)))
		}
		c.Options.DeepSpeed = seed%5 == 2
		job, err := c.job()
		if errors.Is(err, planner.ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		limit := math.Inf(1)
		r, err := job.Search(context.Background(), planner.SearchOptions{Bound: true})
		switch {
		case errors.Is(err, planner.ErrInfeasible):
		case err != nil:
			t.Fatal(err)
		default:
			limit = r.Plan.Predicted.Simulated
			c.countWays(ways, r.Plan)
		}
		jobs++
		// The bound of larger jobs, that of this one by its busiest stage, holds as well.
		if loose, err := job.Search(context.Background(), planner.SearchOptions{Unrefined: true, Bound: true}); err == nil {
			if loose.LowerBound*float64(c.Plan.GlobalBatch) > limit*(1+1e-9) {
				t.Errorf("seed %d: bound %v, but there is a plan of %v s", seed, loose.LowerBound*float64(c.Plan.GlobalBatch), limit)
			}
			ratio, bounded = ratio+math.Log(loose.LowerBound*float64(c.Plan.GlobalBatch)/limit), bounded+1
		}
		b := c.quickest(limit * (1 - 1e-9))
		simulated += b.tried
		if b.best == nil {
			continue
		}
		beaten++
		c.Plan = *b.best
		p, err := planner.ReadPlan(strings.NewReader(c.json(nil)), "plan.json")
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := job.Predict(p)
		if err != nil || math.Abs(got.Simulated/b.limit-1) > 1e-9 {
			t.Errorf("seed %d: the planner prices a plan of %v s otherwise: %+v, %v", seed, b.limit, got, err)
			continue
		}
		worst = max(worst, limit/b.limit)
		found := []byte("none\n")
		if r != nil {
			if found, err = r.Plan.Encode(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("seed %d: found %v s, there is %v s (%.3f)\n%s%s", seed, limit, b.limit, limit/b.limit, found, c.json(nil))
		if r != nil && r.LowerBound*float64(c.Plan.GlobalBatch) > b.limit*(1+1e-9) {
			t.Errorf("seed %d: bound %v, but there is a plan of %v s", seed, r.LowerBound*float64(c.Plan.GlobalBatch), b.limit)
		}
	}
	t.Logf("%d jobs; %d beaten, by up to %.1f%%; %d iterations simulated; the bound is %.3f of the quickest plan (geometric mean); plans found: %v",
		jobs, beaten, 100*(worst-1), simulated, math.Exp(ratio/float64(bounded)), ways)
	if beaten > jobs/50 {
		t.Errorf("of %d jobs %d have a quicker plan than the one found", jobs, beaten)
	}
}

// The dynamic programming has no plan of this job that fits. Refined from those for more memory, one does; the result says what was searched.
func TestRepairedPlan(t *testing.T) {
	c := bruteJob(rand.New(rand.NewPCG(291, 51)))
	job, err := c.job()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Search(t.Context(), planner.SearchOptions{Unrefined: true}); !errors.Is(err, planner.ErrInfeasible) || !strings.Contains(err.Error(), "with 1.25 times") {
		t.Fatal(err)
	}
	r, err := job.Search(t.Context(), planner.SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Conditions != 6 || r.States != 13 || !(r.Bound > 0 && r.Bound <= r.Best) {
		t.Errorf("%d conditions, %d states, bound %v, best %v s a sample", r.Conditions, r.States, r.Bound, r.Best)
	}
	c.Plan = twinPlan{GlobalBatch: c.Plan.GlobalBatch}
	if quickest := c.quickest(r.Plan.Predicted.Simulated * (1 - 1e-9)); quickest.best != nil {
		t.Errorf("found %v s, there is a plan of %v", r.Plan.Predicted.Simulated, quickest.limit)
	}
}

// The quickest plan of this job takes the bound's time where its first stage is the busiest: it was above the plan.
func TestBoundOfABusyFirstStage(t *testing.T) {
	c := bruteJob(rand.New(rand.NewPCG(75, 51)))
	job, err := c.job()
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Search(context.Background(), planner.SearchOptions{Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	quickest := c.quickest(r.Plan.Predicted.Simulated * (1 + 1e-9)).limit
	if x := r.LowerBound * float64(c.Plan.GlobalBatch) / quickest; x > 1+1e-9 || x < 0.99 {
		t.Errorf("bound %v of the quickest plan", x)
	}
}
