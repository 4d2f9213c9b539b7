package clusterfile_test

import (
	"errors"
	"fmt"
	"strings"

	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

// An error about a file quotes the line and marks the fault as bad input.
func ExampleRead() {
	file := strings.NewReader("workload: resnet-50\nglobal_batch: 256\nnodes:\n  - {device: v100, count: 2, colour: red}\n")
	_, _, err := clusterfile.Read(file, "mine.yaml", profile.Embedded())
	fmt.Println(err)
	fmt.Println(errors.Is(err, clusterfile.ErrFile))
	// Output:
	// mine.yaml:4: cluster: invalid file: nodes[0].colour: unknown key; known here: name, device, count, memory, micro_batch, slowdown, fits, link, power, profiled, host, rack, per_machine, inside, switch
	//   4 |   - {device: v100, count: 2, colour: red}
	// true
}
