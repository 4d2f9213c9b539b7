package planner_test

import (
	"context"
	"fmt"
	"log"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner"
	"evenkeel/planner/layerprofile"
)

// A plan for a profile and a cluster of one's own.
func Example() {
	profile, err := layerprofile.Load("examples/opt-350m.csv")
	if err != nil {
		log.Fatal(err)
	}
	topology, err := clusterfile.LoadTopology("examples/mixed.yaml", nil)
	if err != nil {
		log.Fatal(err)
	}
	job, err := planner.NewJob(profile, topology, planner.Options{GlobalBatches: []int{1024}, Replicas: []int{32}, MicroBatches: []int{2}})
	if err != nil {
		log.Fatal(err)
	}
	result, err := job.Search(context.Background(), planner.SearchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range result.Plan.Stages {
		fmt.Println(&result.Plan.Stages[i])
	}
	fmt.Printf("%d micro-batches, %.2f s\n", result.Plan.MicroBatches(), result.Plan.Predicted.Simulated)
	// Output:
	// layers 0-9 on 64 v100-16
	// layers 10-25 on 32 a100-40 + 32 v100-16
	// 16 micro-batches, 4.64 s
}

// A plan is changed by hand and priced again.
func ExampleJob_Predict() {
	profile, topology, err := planner.Example()
	if err != nil {
		log.Fatal(err)
	}
	job, err := planner.NewJob(profile, topology, planner.Options{GlobalBatches: []int{64}})
	if err != nil {
		log.Fatal(err)
	}
	last := len(profile.Layers)
	plan := &planner.Plan{Version: planner.Version, Model: profile.Model, GlobalBatch: 64, MicroBatch: 4, Stages: []planner.Stage{{
		From: 0, To: last,
		Groups:     []planner.Group{{Devices: planner.Devices{Device: "a100-40", First: 0, Count: 4}, Tensor: 1, MicroBatches: []int{1, 1, 1, 1}}},
		Strategies: []planner.Strategy{{From: 0, To: last, Sharding: planner.Optimizer}},
	}}}
	before, err := job.Predict(plan)
	if err != nil {
		log.Fatal(err)
	}
	plan.Stages[0].Strategies[0].Checkpoint = true
	after, err := job.Predict(plan)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("recomputation: %.0f%% more time, %.0f%% of the memory\n", 100*(after.Simulated/before.Simulated-1), 100*after.Stages[0].Memory[0].Peak()/before.Stages[0].Memory[0].Peak())
	// Output:
	// recomputation: 29% more time, 38% of the memory
}
