package gradient_test

import (
	"fmt"
	"math"

	"evenkeel/cluster"
	"evenkeel/cluster/gradient"
)

// Two nodes hand in gradients of 10 and 30 samples, whose squares are 2 and 10/9 of their mean's.
func Example() {
	round := &cluster.Report{Accepted: 40, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: 10, Norm: math.Sqrt(2)},
		{Status: cluster.In, Size: 30, Norm: math.Sqrt(10.0 / 9)},
	}}
	var scale gradient.NoiseScale
	for range 10 {
		scale.Add(round)
	}
	samples, known := scale.Samples()
	fmt.Printf("%.1f samples, known %v, sure %v\n", samples, known, scale.Sure())
	// Output: 20.0 samples, known true, sure true
}
