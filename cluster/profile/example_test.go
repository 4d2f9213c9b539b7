package profile_test

import (
	"errors"
	"fmt"
	"strings"

	"evenkeel/cluster/profile"
)

// The embedded measurements, a user's own beside them, and what a profile answers.
func Example() {
	c := profile.Embedded()
	own := strings.NewReader("device,workload,micro_batch,seconds,peak_bytes\nmy-gpu,llama-3b-512-fp16,1,0.5,8000000000\nmy-gpu,llama-3b-512-fp16,4,1.4,20000000000\n")
	if err := c.AddReader("my-profiles.csv", own); err != nil { // c.Add reads a file or a folder
		fmt.Println(err) // file, line and field of every fault
		return
	}
	p, err := c.Lookup("my-gpu", "llama-3b-512-fp16")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.2f s for 3 samples\n", p.Seconds(3))
	fmt.Printf("%.1f samples in 1.4 s\n", p.Samples(1.4))
	fmt.Printf("%.1f s for one more sample\n", p.PerSample())
	fmt.Printf("%d samples fit into 20 GiB\n", p.MemoryLimit(20<<30))
	// Output:
	// 1.10 s for 3 samples
	// 4.0 samples in 1.4 s
	// 0.3 s for one more sample
	// 4 samples fit into 20 GiB
}

// An unknown name is answered with the nearest known ones.
func ExampleCatalogue_Lookup() {
	_, err := profile.Embedded().Lookup("a10gg", "llama-3b-512-fp16")
	var unknown *profile.UnknownError
	if errors.As(err, &unknown) {
		fmt.Println(unknown.Field, unknown.Nearest[0])
	}
	fmt.Println(errors.Is(err, profile.ErrUnknown))
	// Output:
	// device a10g
	// true
}

// The error about a file lists every fault with its line and column; the file is bad
// input, which a command tells from a failure of the machine.
func ExampleFileError() {
	var c profile.Catalogue
	err := c.AddReader("mine.csv", strings.NewReader("device,workload,micro_batch,seconds,peak_bytes\nmy-gpu,model,0,0.5,\n"))
	var file *profile.FileError
	if errors.As(err, &file) {
		p := file.Problems[0]
		fmt.Printf("line %d, %s: %s\n", p.Line, p.Field, p.Text)
	}
	var bad interface{ BadInput() bool }
	fmt.Println(errors.Is(err, profile.ErrFormat), errors.As(err, &bad) && bad.BadInput())
	// Output:
	// line 2, micro_batch: 0 is outside 1 to 1000000 samples
	// true true
}

// What may be trained on, and how far the measurements reach.
func ExampleSplit() {
	c := profile.Embedded()
	device, _ := c.Device("v100")
	p, err := c.Lookup("v100", "resnet-50")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(device.Split == profile.Train, device.Split == profile.HeldOut)
	fmt.Println(p.Extrapolated(p.Points[0].MicroBatch), p.Extrapolated(1_000_000))
	// Output:
	// true false
	// false true
}
