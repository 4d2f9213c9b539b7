package sim_test

import (
	"context"
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
)

// Three rounds of two nodes, one of which is half as fast as its profile says.
func Example() {
	p, err := profile.New("gpu", "model", []profile.Point{{MicroBatch: 1, Seconds: 0.1}, {MicroBatch: 10, Seconds: 1}}, "an example")
	if err != nil {
		fmt.Println(err)
		return
	}
	c := &cluster.Cluster{Workload: "model", GlobalBatch: 16, Nodes: []cluster.Node{
		{Name: "a", Profile: p, Limit: 16}, {Name: "b", Profile: p, Limit: 16, Hidden: cluster.Hidden{Slowdown: 2}},
	}}
	s := sim.New(c, cluster.Conditions{}, 1)
	for _, sizes := range [][]int{{8, 8}, {10, 6}, {11, 5}} {
		report, err := s.Round(context.Background(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("round %d: %v samples, waited %.1f s, node a idle for %.1f s\n", report.Round, sizes, report.Wait.Seconds(), report.Nodes[0].Idle)
	}
	fmt.Println("slowdowns, for oracles only:", s.Truth().Slowdown)
	// Output:
	// round 0: [8 8] samples, waited 1.6 s, node a idle for 0.8 s
	// round 1: [10 6] samples, waited 1.2 s, node a idle for 0.2 s
	// round 2: [11 5] samples, waited 1.1 s, node a idle for 0.0 s
	// slowdowns, for oracles only: [1 2]
}
