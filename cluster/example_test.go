package cluster_test

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
)

// Two devices of different speed from a file, sizes that let them finish together, and a
// round with these sizes in the simulator.
func Example() {
	_, c, err := clusterfile.Load("clusterfile/testdata/minimal.yaml", profile.Embedded())
	if err != nil {
		fmt.Println(err)
		return
	}
	sizes := make([]int, len(c.Nodes))
	seconds, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
	if err != nil {
		fmt.Println(err)
		return
	}
	var runner cluster.Runner = sim.New(c, cluster.Conditions{}, 1)
	report, err := runner.Round(context.Background(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, n := range report.Nodes {
		fmt.Printf("%s: %d samples, %v after %.2f s\n", c.Nodes[i].Name, sizes[i], n.Status, n.Seconds)
	}
	fmt.Printf("predicted %.2f s, waited %.2f s\n", seconds, report.Wait.Seconds())
	// Output:
	// k80-0: 30 samples, in after 0.66 s
	// v100-0: 226 samples, in after 0.66 s
	// predicted 0.66 s, waited 0.66 s
}

// A node whose share exceeds its memory works it off in micro-steps. One without which the
// others are done sooner gets nothing.
func ExampleAllocate() {
	c := &cluster.Cluster{Workload: "mine", GlobalBatch: 96, Nodes: []cluster.Node{
		{Name: "fast", Limit: 64}, {Name: "small", Limit: 8}, {Name: "far", Limit: 64},
	}}
	believed := []cluster.Performance{ // seconds a round costs at all, and seconds per sample
		{Overhead: 0.5, PerSample: 0.1}, {Overhead: 0.5, PerSample: 0.2}, {Overhead: 30, PerSample: 0.1},
	}
	sizes := make([]int, len(c.Nodes))
	seconds, err := cluster.Allocate(c, nil, believed, sizes)
	fmt.Printf("%v in %.1f s, %v\n", sizes, seconds, err)
	fmt.Println(c.Nodes[1].Steps(sizes[1]), "micro-steps")

	away := []bool{false, false, false}
	_, err = cluster.Allocate(c, away, believed, sizes)
	fmt.Println(errors.Is(err, cluster.ErrCapacity))
	// Output:
	// [64 32 0] in 6.9 s, <nil>
	// 4 micro-steps
	// true
}

// Conditions by name, for the simulator.
func ExamplePreset() {
	c, err := cluster.Preset("failures")
	fmt.Println(c.Failures.Rate, err)
	_, err = cluster.Preset("sunshine")
	fmt.Println(errors.Is(err, cluster.ErrPreset))
	// Output:
	// 0.001 <nil>
	// true
}
