package measure_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/evenkeel/evenkeel/planner/measure"
	"github.com/evenkeel/evenkeel/train"
)

func Example() {
	network, err := train.MLP(8, 16, 4)
	if err != nil {
		log.Fatal(err)
	}
	p, err := measure.Network(context.Background(), network, measure.Options{Device: "cpu", MicroBatches: []int{1, 2}, Each: time.Millisecond}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range p.Layers {
		fmt.Println(l.Parameters, "parameters,", l.Output, "bytes of a sample, micro-batches measured:", len(l.Runs))
	}
	// Output:
	// 144 parameters, 64 bytes of a sample, micro-batches measured: 2
	// 68 parameters, 16 bytes of a sample, micro-batches measured: 2
}
