package execute_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"evenkeel/planner"
	"evenkeel/planner/execute"
	"evenkeel/train"
)

// numbers are samples of which the target is the largest of four inputs.
type numbers struct{}

func (numbers) Len() int { return 64 }

func (numbers) Sample(i int, inputs []float32, targets []int32) {
	clear(inputs)
	inputs[i%4], targets[0] = 1, int32(i%4)
}

// Two stages, here in one process; the second may be on another machine.
func Example() {
	network, err := train.MLP(4, 16, 4)
	if err != nil {
		log.Fatal(err)
	}
	plan := &planner.Plan{Version: planner.Version, GlobalBatch: 16, MicroBatch: 4}
	for i := range 2 {
		plan.Stages = append(plan.Stages, planner.Stage{From: i, To: i + 1,
			Groups:     []planner.Group{{Devices: planner.Devices{Device: "cpu", First: i, Count: 1}, Tensor: 1, MicroBatches: []int{4}}},
			Strategies: []planner.Strategy{{From: i, To: i + 1, Sharding: planner.Replicated}}})
	}
	job, err := execute.NewJob(plan, network)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := execute.MakeKeys(dir, len(plan.Stages), time.Now(), 30*24*time.Hour); err != nil {
		log.Fatal(err)
	}
	keys := func(stage int) *execute.Keys {
		k, err := execute.LoadKeys(dir, stage, time.Now())
		if err != nil {
			log.Fatal(err)
		}
		return k
	}

	// The first stage is the server: it owns the data, gives the orders and reports.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	training := execute.Training{Optimizer: train.Optimizer{Method: train.AdamW, Rate: 0.05}, Seed: 1, Steps: 20}
	server := &execute.Server{Job: job, Training: training, Data: numbers{}, Keys: keys(0), Listener: listener}

	// Every other stage is a client. All but the last also have a Listener, for the next stage.
	done := make(chan error)
	go func() {
		client := &execute.Client{Job: job, Stage: 1, Keys: keys(1), Server: listener.Addr().String()}
		_, err := client.Run(context.Background())
		done <- err
	}()

	result, err := server.Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(result.Losses), "iterations; the loss falls:", result.Losses[19] < result.Losses[0]/4)
	// Output:
	// 20 iterations; the loss falls: true
}
