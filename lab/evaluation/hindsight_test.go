package evaluation

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/parallel"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
)

// randomCell is a cluster under conditions that advance by time, with noise that advances by round in some cells.
func randomCell(rng *rand.Rand) (*cluster.Cluster, cluster.Conditions) {
	uniform := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	catalogue, workload := profile.Embedded(), []string{"bert-base-512-fp32", "llama-3b-512-fp16", "resnet-50"}[rng.IntN(3)]
	c := &cluster.Cluster{Workload: workload}
	var profiles []*profile.Profile
	for _, d := range catalogue.Devices() {
		if p, err := catalogue.Lookup(d.Name, workload); err == nil {
			profiles = append(profiles, p)
		}
	}
	for range 2 + rng.IntN(15) {
		c.Nodes = append(c.Nodes, cluster.Node{Profile: profiles[rng.IntN(len(profiles))], Limit: 4 + rng.IntN(30)})
		c.GlobalBatch += 8 + rng.IntN(150)
	}
	var k cluster.Conditions
	for range 1 + rng.IntN(3) {
		p := cluster.Pattern{
			Per: []string{cluster.PerNode, cluster.PerRack, cluster.PerRun}[rng.IntN(3)], Size: rng.IntN(6), Share: uniform(0.1, 1),
			Every: cluster.Spread{Median: uniform(1, 60), Sigma: uniform(0, 1)}, Length: cluster.Spread{Median: uniform(0.1, 20), Sigma: uniform(0, 0.5)}, Vary: uniform(0, 0.5),
			Excess: cluster.Spread{Median: uniform(0.05, 3), Sigma: uniform(0, 1)}, Ramp: rng.IntN(3) == 0, Notice: uniform(0, 4), Sign: uniform(0, 0.3),
		}
		if p.Per != cluster.PerNode {
			p.Lag, p.Hop = uniform(0, 3), rng.IntN(2) == 0
		}
		k.Patterns = append(k.Patterns, p)
	}
	if rng.IntN(2) == 0 {
		k.Turns = cluster.Spread{Median: uniform(10, 60), Sigma: 0.3}
	}
	if rng.IntN(2) == 0 {
		k.Bias, k.Noise, k.Spikes = uniform(0, 0.2), cluster.Spread{Median: uniform(0.005, 0.05), Sigma: 0.5}, cluster.Spikes{Rate: uniform(0, 0.05), Least: 0.1, More: 0.2}
	}
	return c, k
}

// Where spells advance by time, no policy that waits for all passes hindsight in any of 200 random cells. One that sets deadlines, keeps to
// the global batch and has four nodes or more passes it by half a percent at most: it wastes no part of a sample, and takes a few
// more in rounds with little noise, which comes by round. Where spells advance by round as well, such rules pass it by several percent.
func TestHindsightIsABound(t *testing.T) {
	trained, hindsight := embedded(t), bound("hindsight", "", baseline.Oracle{Noise: true})
	all := slices.DeleteFunc(Specs(), func(p Spec) bool { return p.Rule || p.Batch })
	cells := 200
	if race.Enabled || !slow.Enabled() {
		cells = 20
	}
	var mu sync.Mutex
	waits, timed, most := 0, 0, 0.0
	err := parallel.Each(cells, func(cell int) error {
		rng := rand.New(rand.NewPCG(7, uint64(cell)))
		c, k := randomCell(rng)
		if err := k.Validate(); err != nil {
			return err
		}
		play := func(p *Spec, point int, deadline bool) (Score, error) {
			on := c.Own()
			on.Collect.AutoDeadline, on.Collect.Overtime = deadline, 0.1
			s := sim.New(on, k, uint64(cell))
			return Play(context.Background(), on, s, p.New(on, s, trained, agenttest.Speed, point), 100, nil, nil)
		}
		bound, err := play(&hindsight, 0, false)
		if err != nil {
			return err
		}
		for i := range all {
			for _, deadline := range []bool{false, true} {
				if p := &all[i]; !deadline && p.Timed || deadline && (!p.Timed && !p.Deadline || len(c.Nodes) < 4) {
					continue
				}
				got, err := play(&all[i], rng.IntN(all[i].Points()), deadline)
				if err != nil {
					return err
				}
				over := got.Goodput/bound.Goodput - 1
				mu.Lock()
				switch {
				case !deadline:
					if waits++; over > 1e-9 {
						t.Errorf("cell %d: %s is %.5f above hindsight", cell, all[i].Name, over)
					}
				case got.SamplesMean > 0.99 && got.SamplesMean < 1.01:
					if timed++; over > 0.005 {
						t.Errorf("cell %d: %s with deadlines is %.5f above hindsight", cell, all[i].Name, over)
					}
					most = max(most, over)
				}
				mu.Unlock()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if t.Log(waits, "runs that wait for all,", timed, "with deadlines, at most", most, "above"); timed < 2*cells {
		t.Error("too few rules kept to the global batch")
	}
}
