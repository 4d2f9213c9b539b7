// Command allocation splits a global batch over three devices that differ, so that all
// finish at the same time. The batch is several times what their memory holds, so each works its
// share off in micro-steps whose gradients add up. It needs no files, no agent and no simulator.
package main

import (
	"fmt"
	"log"

	"evenkeel/cluster"
)

func main() {
	// Memory allows at most Limit samples in one micro-batch.
	c := &cluster.Cluster{GlobalBatch: 256, Nodes: []cluster.Node{
		{Name: "new", Limit: 16}, {Name: "old", Limit: 8}, {Name: "shared", Limit: 4},
	}}
	// Seconds for a share of b samples: Overhead once a round, PerSample * b, from your measurements.
	performance := []cluster.Performance{
		{Overhead: 0.020, PerSample: 0.004},
		{Overhead: 0.020, PerSample: 0.010},
		{Overhead: 0.050, PerSample: 0.012},
	}
	sizes := make([]int, len(c.Nodes))
	seconds, err := cluster.Allocate(c, nil, performance, sizes) // nil: every node is present
	if err != nil {
		log.Fatal(err)
	}
	for i, n := range c.Nodes {
		fmt.Printf("%-6s %3d samples in %2d micro-steps of up to %2d, done after %.3f s\n",
			n.Name, sizes[i], n.Steps(sizes[i]), n.Full(), n.Finish(performance[i], sizes[i]))
	}
	fmt.Printf("round  %d samples, %.3f s\n", c.GlobalBatch, seconds)
}
