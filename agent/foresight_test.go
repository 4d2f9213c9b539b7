package agent

import (
	"context"
	"fmt"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// Foresight brings at least so much where spells have an order, and costs nothing where they have none; four seeds of 400 rounds.
func TestForesightPays(t *testing.T) {
	for _, x := range []struct {
		conditions  string
		least, most float64 // seconds without foresight over those with it
	}{
		{"periodic", 1.01, 1.2}, {"saves", 1.003, 1.1}, {"hopping", 1.05, 1.5}, {"announced", 1.01, 1.2},
		{"steady", 0.9999, 1.0001}, {"bursts", 0.999, 1.001}, {"racks", 0.998, 1.002},
	} {
		seconds := func(create func(*cluster.Cluster) *Agent, seed uint64) float64 {
			c := agenttest.HeldOut16(t).Own()
			for i := range c.Nodes {
				c.Nodes[i].Rack = fmt.Sprint(i / 4)
			}
			ctl, sum := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, x.conditions), seed), Policy: create(c)}, 0.0
			for range 400 {
				r, err := ctl.Round(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				sum += r.Report.Wait.Seconds()
			}
			return sum
		}
		gain := 0.0
		for seed := range uint64(4) {
			gain += seconds(NewReactive, seed) / seconds(NewModel, seed) / 4
		}
		if gain < x.least || gain > x.most {
			t.Errorf("%s: %.4f times as fast with foresight, want %v to %v", x.conditions, gain, x.least, x.most)
		}
	}
}

// An explanation says what is foreseen of a node, and whether its share leaves room for it.
func TestExplainSaysWhatIsAhead(t *testing.T) {
	c := agenttest.HeldOut16(t).Own()
	for i := range c.Nodes {
		c.Nodes[i].Rack = fmt.Sprint(i / 4)
	}
	a := untrained(t, 8).NewAgent(c, agenttest.Speed)
	ctl := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "hopping"), 1), Policy: a}
	ready := 0
	for range 300 {
		if _, err := ctl.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range c.Nodes {
			ahead := a.Explain(i).After.Ahead
			if ahead.Ready {
				ready++
				if ahead.Chance <= 0 || ahead.Slowdown <= 1 || ahead.Rounds <= 0 {
					t.Fatalf("node %d is ready for %+v", i, ahead)
				}
			}
		}
	}
	if ready < 20 {
		t.Errorf("%d shares left room for a spell", ready)
	}
}
