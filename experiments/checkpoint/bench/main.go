// Command bench measures what checkpoints cost on a disk, beside torch.save and torch.load where PyTorch is there,
// and writes bench.json and the figures of experiments/checkpoint/RESULTS.md.
//
//	go run ./experiments/checkpoint/bench -out experiments/checkpoint
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/evenkeel/evenkeel/checkpoint/bench"
)

func main() {
	var c bench.Config
	flag.StringVar(&c.Folder, "dir", os.TempDir(), "folder on the disk to measure")
	flag.Int64Var(&c.Bytes, "bytes", 256<<20, "bytes of a checkpoint")
	flag.IntVar(&c.Layers, "layers", 48, "layers")
	flag.IntVar(&c.Trials, "trials", 7, "trials")
	flag.IntVar(&c.Workers, "workers", 1, "goroutines that compute")
	flag.Parse()
	r, err := bench.Run(context.Background(), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	_ = e.Encode(r)
}
