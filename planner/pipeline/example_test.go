package pipeline_test

import (
	"fmt"
	"log"

	"evenkeel/planner/pipeline"
)

func Example() {
	stages := []pipeline.Timing{{Forward: 1, Backward: 2, SendNext: 0.25}, {Forward: 1, Backward: 2}}
	orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, len(stages), 1, 3)
	if err != nil {
		log.Fatal(err)
	}
	ops, seconds, err := pipeline.Simulate(stages, orders, false)
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range ops[1] {
		fmt.Printf("%.2f to %.2f s: micro-batch %d, backward %v\n", o.Start, o.End, o.MicroBatch, o.Backward)
	}
	fmt.Printf("%.2f s in all\n", seconds)
	// Output:
	// 1.25 to 2.25 s: micro-batch 0, backward false
	// 2.25 to 4.25 s: micro-batch 0, backward true
	// 4.75 to 5.75 s: micro-batch 1, backward false
	// 5.75 to 7.75 s: micro-batch 1, backward true
	// 8.25 to 9.25 s: micro-batch 2, backward false
	// 9.25 to 11.25 s: micro-batch 2, backward true
	// 13.50 s in all
}
