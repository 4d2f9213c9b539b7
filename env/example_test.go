package env_test

import (
	"fmt"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
)

// A controller without a network: two equal devices, the second of which turns out to be half as fast. The model's own
// update corrects its parameters, and the allocation follows.
func Example() {
	p, err := profile.New("device", "model", []profile.Point{{MicroBatch: 1, Seconds: 0.01}, {MicroBatch: 64, Seconds: 0.64}}, "measured")
	if err != nil {
		panic(err)
	}
	c := &cluster.Cluster{Workload: "model", GlobalBatch: 48, Nodes: []cluster.Node{
		{Name: "a", Profile: p, Limit: profile.NoLimit}, {Name: "b", Profile: p, Limit: profile.NoLimit},
	}}
	tracker, perf := env.NewTracker(c), c.Nominal()
	var alloc cluster.Allocator
	sizes, actions, present := make([]int, 2), make([]int, 2), []bool{true, true}
	var rows []float32
	for round := range 4 {
		finish, err := alloc.Allocate(c, present, perf, sizes)
		if err != nil {
			panic(err)
		}
		fmt.Println("round", round, "sizes", sizes)
		tracker.Predict(finish)
		a, b := 0.01*float64(sizes[0]), 0.02*float64(sizes[1]) // what the round would measure
		tracker.Observe(&cluster.Report{Wait: time.Duration(max(a, b) * 1e9), Nodes: []cluster.NodeReport{
			{Status: cluster.In, Size: sizes[0], Seconds: a, Samples: sizes[0]}, {Status: cluster.In, Size: sizes[1], Seconds: b, Samples: sizes[1]},
		}})
		rows = tracker.Rows(rows, [env.Objectives]float64{1}) // what a network would choose the actions by
		tracker.Model(actions)
		tracker.Apply(actions, perf)
	}
	fmt.Println(len(rows)/env.Features, "rows")
	// Output:
	// round 0 sizes [24 24]
	// round 1 sizes [31 17]
	// round 2 sizes [32 16]
	// round 3 sizes [32 16]
	// 2 rows
}
