package clusters_test

import (
	"fmt"
	"log"

	"evenkeel/agent/clusters"
	"evenkeel/cluster/profile"
)

// Every embedded cluster.
func Example() {
	for _, name := range clusters.Names() {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d nodes train %s\n", name, len(c.Nodes), c.Workload)
	}
	// Output:
	// example: 16 nodes train llama-7b-512-fp16
	// heldout-8: 8 nodes train gpt-1.3b-512-fp32
	// heldout-16: 16 nodes train gpt-2.7b-512-fp32
	// heldout-24: 24 nodes train bert-large-512-fp32
	// heldout-32: 32 nodes train vit-g-fp32
	// heldout-64: 64 nodes train llama-7b-512-fp32
}
