package bench_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evenkeel/evenkeel/checkpoint/bench"
)

// How near a checkpoint comes to the disk's limits, here with sizes that are too small to say much.
func Example() {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	result, err := bench.Run(context.Background(), bench.Config{Folder: dir, Bytes: 1 << 20, Layers: 2, Trials: 1, Steps: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	// As a table would have it: "writing reaches 0.85 of the disk's limit, reading 1.20".
	fmt.Println(result.PersistOverLimit > 0, result.RestoreOverLimit > 0)
	// Output: true true
}
