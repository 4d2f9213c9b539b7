package costmodel_test

import (
	"fmt"
	"log"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/layerprofile"
)

func Example() {
	profile, err := layerprofile.Load("../examples/opt-350m.csv")
	if err != nil {
		log.Fatal(err)
	}
	topology, err := clusterfile.LoadTopology("../examples/mixed.yaml", nil)
	if err != nil {
		log.Fatal(err)
	}
	model, err := costmodel.New(profile, topology, costmodel.Options{GlobalBatches: []int{64}})
	if err != nil {
		log.Fatal(err)
	}
	stage := costmodel.Stage{From: 0, To: len(profile.Layers), Groups: []costmodel.Group{{Class: 0, Replicas: 2, Tensor: 2, Shares: []int{2, 2}}}}
	for range profile.Layers {
		stage.Strategies = append(stage.Strategies, costmodel.Strategy{Sharding: costmodel.Replicated})
	}
	cost, err := model.Price(64, 4, []costmodel.Stage{stage})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f s; %s of each %s\n", cost.Seconds, costmodel.Bytes(cost.Stages[0].Memory[0].Peak()), cost.Stages[0].Memory[0].Device)
	// Output:
	// 3.64 s; 13.63 GiB of each a100-40
}
