package export_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

// The sizes of an allocation become a script that torchrun's processes source.
func Example() {
	const file = `
workload: bert-base-512-fp32
global_batch: 64
nodes: [{device: v100-16g, micro_batch: 16}, {device: t4}]
`
	_, c, err := clusterfile.Read(strings.NewReader(file), "cluster.yaml", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	sizes := make([]int, len(c.Nodes))
	if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil {
		log.Fatal(err)
	}
	s := export.New(c, sizes)
	if err := s.ScaleLearningRate(export.Sqrt, 16, 0); err != nil { // the user's batch was 16
		log.Fatal(err)
	}
	for rank, n := range s.Ranks() {
		fmt.Printf("rank %d: %s, %d samples, steps %d of at most %d, weight %.3f\n", rank, n.Name, n.Share, n.MicroSteps, n.MicroBatch, n.GradientWeight)
	}
	fmt.Println("learning rate times", s.LearningRateFactor)
	if err := export.Write(os.Stdout, "csv", s); err != nil { // or export.Save, to a file
		log.Fatal(err)
	}
	// Output:
	// rank 0: v100-16g-0, 46 samples, steps 3 of at most 16, weight 1.438
	// rank 1: t4-0, 18 samples, steps 1 of at most 18, weight 0.562
	// learning rate times 2
	// rank,name,device,micro_batch,micro_steps,share,gradient_weight
	// 0,v100-16g-0,v100-16g,16,3,46,1.4375
	// 1,t4-0,t4,18,1,18,0.5625
}

// Read checks what it reads.
func ExampleRead() {
	_, err := export.Read(strings.NewReader(`{"version": 3, "workload": "w", "global_batch": 0, "nodes": []}`))
	fmt.Println(errors.Is(err, export.ErrSizes))
	fmt.Println(err)
	// Output:
	// true
	// export: bad sizes: global_batch: is 0; it must lie in 1..1073741824 samples
	// export: bad sizes: nodes: 0 nodes; there must be 1 to 100000, with one size each
}

// Formats lists what Write writes.
func ExampleFormats() {
	first := export.Formats()[0]
	fmt.Printf("%s: %s\n", first.Name, first.Description)
	// Output:
	// json: the sizes file, with a JSON schema
}

// Schema lets other programs check the json format.
func ExampleSchema() {
	var schema struct{ Title string }
	if err := json.Unmarshal(export.Schema(), &schema); err != nil {
		log.Fatal(err)
	}
	fmt.Println(schema.Title)
	// Output:
	// Evenkeel sizes
}
