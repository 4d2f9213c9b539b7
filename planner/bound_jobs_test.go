package planner_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/internal/slow"
	"evenkeel/planner"
)

// machinesJob is a job of few layers on small machines of two or three kinds, with links so slow that it counts over how many of them a stage
// lies, what it sends, and where its replicas may lie; three devices of a machine may share a layer.
func machinesJob(rng *rand.Rand) *twinCase {
	c := &twinCase{Options: twinOptions{Memory: 1, Compute: 1.1256, Communication: 1.1256, W: 2, G: 2, O: 12, Links: 1, Activations: 1, Working: 1}}
	rate := func(latency, low, high float64) twinLevel {
		return twinLevel{Latency: latency, Rates: []twinRate{{1, 1e6 * math.Round(twinScale(rng, low, high))}}}
	}
	for _, device := range []string{"a100", "h200", "l4"}[:2+rng.IntN(4)/3] {
		per := 1 + rng.IntN(3)
		c.Cluster.Classes = append(c.Cluster.Classes, twinClass{Device: device, Count: per * (1 + rng.IntN(max(1, 5/per))), PerMachine: per, Slow: 1, Memory: 64 << 30,
			Inside: rate(5e-6, 2000, 20000), Link: rate(1e-5, 300, 3000), Switch: -1})
	}
	c.Plan.GlobalBatch = twinPick(rng, 6, 8, 12)
	slower := []float64{1, twinScale(rng, 1, 2.5), twinScale(rng, 1, 2.5)}
	for range 1 + rng.IntN(3) {
		l := twinLayer{Parameters: math.Round(twinScale(rng, 1e6, 3e8)), Output: math.Round(twinScale(rng, 1e5, 3e7)), Runs: map[twinKey][]twinRun{}}
		seconds := twinScale(rng, 0.05, 0.3)
		for class := range c.Cluster.Classes {
			for _, t := range []int{1, 2, 3} {
				for _, n := range []int{1, 2, 4} {
					f := seconds * slower[class] * (0.3 + float64(n)) / float64(t) * (1 + 0.1*float64(t-1))
					l.Runs[twinKey{class, t, 1}] = append(l.Runs[twinKey{class, t, 1}], twinRun{MicroBatch: n, Forward: f, Backward: 2 * f, Update: l.Parameters / float64(t) * 1e-10})
				}
			}
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

// The bound lies near the quickest of all plans, and never above it, whatever time is known: also where the quickest has stages of several
// classes over several machines.
func TestLowerBoundOverMachines(t *testing.T) {
	slow.Skip(t)
	want, jobs, several, sum := *machineJobs, 0, 0, 0.0
	for seed := range uint64(want) {
		c := machinesJob(rand.New(rand.NewPCG(seed, 41)))
		job, err := c.job()
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Search(context.Background(), planner.SearchOptions{Bound: true})
		if errors.Is(err, planner.ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b := c.quickest(r.Plan.Predicted.Simulated * (1 + 1e-9))
		jobs++
		for _, s := range b.best.Stages {
			machines := 0
			for _, g := range s.Groups {
				n, _ := c.Cluster.place(&g)
				machines += n
			}
			if len(s.Groups) > 1 && machines > 2 {
				several++
				break
			}
		}
		best := 0.0
		for _, times := range []float64{1, 1.06, 1.11, 1.3, 3} {
			got := job.LowerBound(c.Plan.GlobalBatch, times*b.limit)
			if got > b.limit*(1+1e-9) {
				t.Errorf("seed %d, where %v times as long is known: %v, but a plan takes %v: %+v", seed, times, got, b.limit, b.best.Stages)
			}
			best = max(best, got)
		}
		sum += math.Log(best / b.limit)
	}
	mean := math.Exp(sum / float64(jobs))
	t.Logf("%d jobs, of %d the quickest plan has stages of several classes on more than two machines; bound %.3f of it", jobs, several, mean)
	if jobs < want/2 || several <= jobs/10 || mean < 0.94 {
		t.Errorf("of %d jobs %d were tried, %d with such stages, and the bound is %.3f of the quickest plan", want, jobs, several, mean)
	}
}
