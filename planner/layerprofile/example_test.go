package layerprofile_test

import (
	"fmt"
	"log"
	"strings"

	"evenkeel/planner/layerprofile"
)

func Example() {
	// layerprofile.Load reads a file.
	p, err := layerprofile.Read(strings.NewReader(
		`layer,name,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes
0,embedding,1000000,4096,a100,1,1,0.001,8192
0,embedding,1000000,4096,a100,1,4,0.003,8192
1-12,block,7000000,4096,a100,1,1,0.004,65536
1-12,block,7000000,4096,a100,1,4,0.010,65536
`), "small.csv")
	if err != nil {
		log.Fatal(err)
	}
	run, ok := p.Layers[5].Curve("a100", layerprofile.Degree{Tensor: 1, Machines: 1}).At(2)
	fmt.Println(len(p.Layers), p.Devices(), p.Degrees("a100"))
	fmt.Printf("%v: forward %.3f s, backward %.3f s\n", ok, run.Forward, run.Backward)
	// Output:
	// 13 [a100] [1]
	// true: forward 0.006 s, backward 0.012 s
}
