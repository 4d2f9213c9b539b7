package agent

import (
	"math"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// sixteen is a cluster of four types, every third node without a profile.
func sixteen(t *testing.T) *cluster.Cluster {
	c := agenttest.HeldOut16(t)
	for i := range c.Nodes {
		if n := &c.Nodes[i]; i%3 == 0 {
			n.Hidden.Profile, n.Profile = n.Profile, nil
		}
	}
	return c
}

// watch lets the model run a cluster for so many rounds, and an Observer look on.
func watch(t *testing.T, c *cluster.Cluster, s *sim.Simulator, rounds int) *Observer {
	t.Helper()
	o := NewObserver(c)
	control := Control{Cluster: c, Runner: s, Policy: NewModel(c)}
	for range rounds {
		r, err := control.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.Add(r.Report)
	}
	return o
}

// Nodes without noise are learned to within a hundredth of the round time, slowed ones and
// those without a profile too; a spell at the end changes nothing.
func TestObserver(t *testing.T) {
	c := sixteen(t)
	for i := range c.Nodes {
		c.Nodes[i].Hidden.Slowdown = 1 + 0.1*float64(i%5)
	}
	o := watch(t, c, sim.New(c, cluster.Conditions{}, 1), 100)
	shown := c.Revealed()
	truth := shown.Nominal()
	for i := range truth {
		truth[i] = shown.Nodes[i].Slowed(truth[i], c.Nodes[i].Hidden.Slowdown)
		if o.Rounds(i) != 100 || math.Abs(o.Slowed(i)-1) > 0.01 {
			t.Errorf("node %d: %d rounds, slowed %v", i, o.Rounds(i), o.Slowed(i))
		}
	}
	sizes := make([]int, len(c.Nodes))
	if _, err := cluster.Allocate(c, nil, o.Performance(), sizes); err != nil {
		t.Fatal(err)
	}
	seconds, report := 0.0, &cluster.Report{Nodes: make([]cluster.NodeReport, len(c.Nodes))}
	for i, b := range sizes {
		took := shown.Nodes[i].Finish(truth[i], b)
		seconds = max(seconds, took)
		report.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Seconds: took * (1 + 2*float64(i%2))}
	}
	best, err := cluster.Allocate(shown, nil, truth, make([]int, len(c.Nodes)))
	if err != nil {
		t.Fatal(err)
	}
	if seconds > 1.01*best {
		t.Errorf("%v s by what was seen, %v by the truth", seconds, best)
	}
	before := append([]cluster.Performance(nil), o.Performance()...)
	for range 5 {
		o.Add(report)
	}
	for i, p := range o.Performance() {
		off := c.Nodes[i].Finish(p, sizes[i])/c.Nodes[i].Finish(before[i], sizes[i]) - 1
		if slow := i%2 == 1; math.Abs(off) > 0.25 || slow != (o.Slowed(i) > 2) {
			t.Errorf("node %d after a spell of threefold time: %+.2f, slowed %v", i, off, o.Slowed(i))
		}
	}
}

// Sizes by 100 rounds that were seen wait less in the 300 after them than those by the
// profiles; go test -v prints by how much.
func TestObserverPays(t *testing.T) {
	for preset, most := range map[string]float64{"steady": 0.97, "drift": 0.99, "interference": 0.99, "bursts": 1} {
		t.Run(preset, func(t *testing.T) {
			c, sum, current := agenttest.HeldOut16(t), 0.0, 0.0
			const seeds = 10
			for seed := range uint64(seeds) {
				conditions := agenttest.Conditions(t, preset)
				s := sim.New(c, conditions, seed)
				o := watch(t, c, s, 100)
				wait := func(perf []cluster.Performance) float64 {
					sizes, seconds := make([]int, len(c.Nodes)), 0.0
					if _, err := cluster.Allocate(c, nil, perf, sizes); err != nil {
						t.Fatal(err)
					}
					later := sim.New(c, conditions, seed)
					watch(t, c, later, 100) // as far as s
					for range 300 {
						r, err := later.Round(t.Context(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
						if err != nil {
							t.Fatal(err)
						}
						seconds += r.Wait.Seconds()
					}
					return seconds
				}
				nominal := wait(c.Nominal())
				sum += wait(o.Performance()) / nominal / seeds
				current += wait(o.newest) / nominal / seeds
			}
			t.Logf("%.3f of the wait by the profiles, %.3f by the newest belief", sum, current)
			if sum > most {
				t.Errorf("%.3f of the wait by the profiles, at most %.2f was expected", sum, most)
			}
		})
	}
}
