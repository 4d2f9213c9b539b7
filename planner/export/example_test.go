package export_test

import (
	"fmt"
	"log"
	"os"

	"evenkeel/planner"
	"evenkeel/planner/export"
)

// twoStages is a plan for eight devices.
func twoStages() *planner.Plan {
	p := &planner.Plan{Version: planner.Version, Model: "gpt", GlobalBatch: 32, MicroBatch: 4}
	for i := range 2 {
		p.Stages = append(p.Stages, planner.Stage{From: 6 * i, To: 6*i + 6,
			Groups:     []planner.Group{{Devices: planner.Devices{Device: "a100", First: 4 * i, Count: 4}, Tensor: 2, MicroBatches: []int{2, 2}}},
			Strategies: []planner.Strategy{{From: 6 * i, To: 6*i + 6, Sharding: planner.Optimizer}}})
	}
	return p
}

func Example() {
	warnings, err := export.Write(os.Stdout, "megatron", twoStages(), export.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	// Output:
	// # Evenkeel plan of the model "gpt" for Megatron-LM: the arguments that it decides. Add those of the model and the data.
	// #   torchrun --nproc-per-node N --nnodes M ... pretrain_gpt.py $(grep -v '^#' FILE) ARGUMENTS
	// # stage 0: layers 0-5; ranks 0-3 are a100 0-3
	// # stage 1: layers 6-11; ranks 4-7 are a100 4-7
	// # With tensor or context parallelism, devices before Blackwell need CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment.
	// --num-layers 12
	// --tensor-model-parallel-size 2
	// --pipeline-model-parallel-size 2
	// --micro-batch-size 2
	// --global-batch-size 32
	// --use-distributed-optimizer
	// warning: all 12 layers of the plan count as transformer layers; where the first or the last are the embedding or the output, say how many by --embedding-layers and --head-layers
}

func ExampleFormats() {
	for _, f := range export.Formats() {
		fmt.Println(f.Name)
	}
	// Output:
	// megatron
	// deepspeed
	// torch
}
