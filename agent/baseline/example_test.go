package baseline_test

import (
	"context"
	"fmt"
	"log"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
)

// A rule runs under the same control as the agent. The first round goes by the profiles;
// then each node's share follows what was measured.
func Example() {
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	c.Nodes[0].Hidden.Slowdown = 2 // the rule does not know
	rule := baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.2, Margin: 1})
	control := &agent.Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: rule}
	for n := range 2 {
		round, err := control.Round(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("round %d: %d samples for %s\n", n, round.Plan.Sizes[0], c.Nodes[0].Name)
	}
	// Output:
	// round 0: 45 samples for a6000-0
	// round 1: 24 samples for a6000-0
}
