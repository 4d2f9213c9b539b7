package planner

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// machinesJob is a job of few layers on small machines of two or three kinds, with links so slow that it counts over how many of them a stage
// lies, what it sends, and where its replicas may lie; three devices of a machine may share a layer.
func machinesJob(rng *rand.Rand) (*Job, error) {
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	p := &layerprofile.Profile{Model: "machines"}
	classes := []string{"a", "b", "c"}[:2+rng.IntN(4)/3]
	slow := []float64{1, between(1, 2.5), between(1, 2.5)}
	for range 1 + rng.IntN(3) {
		l := layerprofile.Layer{Parameters: between(1e6, 3e8), Output: between(1e5, 3e7)}
		seconds := between(0.05, 0.3)
		for i, d := range classes {
			for _, t := range []int{1, 2, 3} {
				for _, n := range []int{1, 2, 4} {
					f := seconds * slow[i] * (0.3 + float64(n)) / float64(t) * (1 + 0.1*float64(t-1))
					l.Runs = append(l.Runs, layerprofile.Run{Device: d, Tensor: t, MicroBatch: n, Forward: f, Backward: 2 * f, Update: l.Parameters / float64(t) * 1e-10})
				}
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("machines"); err != nil {
		return nil, err
	}
	nodes := "nodes:\n"
	for _, d := range classes {
		per := 1 + rng.IntN(3)
		nodes += fmt.Sprintf("  - {device: %s, count: %d, per_machine: %d, memory: 64GiB, inside: {bandwidth: %.0fMB/s, latency: 5us}, link: {bandwidth: %.0fMB/s, latency: 10us}}\n",
			d, per*(1+rng.IntN(max(1, 5/per))), per, between(2000, 20000), between(300, 3000))
	}
	top, err := clusterfile.ReadTopology(strings.NewReader(nodes), "machines", nil)
	if err != nil {
		return nil, err
	}
	return NewJob(p, top, Options{GlobalBatches: []int{[]int{6, 8, 12}[rng.IntN(3)]}, Checkpoint: "never", Shardings: []Sharding{Replicated, Optimizer}})
}

// The bound lies near the quickest of all plans, and never above it, whatever time is known: also where the quickest has stages of several
// classes over several machines.
func TestLowerBoundOverMachines(t *testing.T) {
	want, jobs, several, sum := *boundJobs/2, 0, 0, 0.0
	for seed := range uint64(want) {
		j, err := machinesJob(rand.New(rand.NewPCG(seed, 41)))
		if err != nil {
			t.Fatal(err)
		}
		batch := j.options.GlobalBatches[0]
		work := costmodel.ExhaustWork
		x := j.model.Exhaust(context.Background(), batch, math.Inf(1), &work)
		if !x.Complete || x.Stages == nil {
			continue
		}
		jobs++
		for _, s := range x.Stages {
			machines := 0
			for _, g := range s.Groups {
				machines += (g.Devices()-1)/j.topology.Classes[g.Class].PerMachine + 1
			}
			if len(s.Groups) > 1 && machines > 2 {
				several++
				break
			}
		}
		best := 0.0
		for _, times := range []float64{1, 1.06, 1.11, 1.3, 3} {
			got := j.model.LowerBound(context.Background(), batch, times*x.Seconds)
			if got > x.Seconds*(1+1e-9) {
				t.Errorf("seed %d, where %v times as long is known: %v, but a plan takes %v: %+v", seed, times, got, x.Seconds, x.Stages)
			}
			best = max(best, got)
		}
		sum += math.Log(best / x.Seconds)
	}
	mean := math.Exp(sum / float64(jobs))
	t.Logf("%d jobs, of %d the quickest plan has stages of several classes on more than two machines; bound %.3f of it", jobs, several, mean)
	if jobs < want/2 || several < jobs/10 || mean < 0.94 {
		t.Errorf("of %d jobs %d were tried, %d with such stages, and the bound is %.3f of the quickest plan", want, jobs, several, mean)
	}
}
