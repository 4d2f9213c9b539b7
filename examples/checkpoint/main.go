// Command checkpoint trains two small layers, saves every step as it goes, ends,
// and goes on from the newest checkpoint that verifies.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"evenkeel/checkpoint"
)

func main() {
	dir, err := os.MkdirTemp("", "evenkeel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run.ckpt")
	for range 2 { // the second run finds what the first one saved
		if err := train(context.Background(), path, 5); err != nil {
			log.Fatal(err)
		}
	}
}

// train makes some steps from wherever the file is, a new file included.
func train(ctx context.Context, path string, steps uint64) (err error) {
	layers := map[string][]float32{"dense": make([]float32, 1000), "head": make([]float32, 10)}
	// Without Block, a step that would wait for the disk is not saved.
	opts := checkpoint.Options{WhenFull: checkpoint.Block}
	arrays := []checkpoint.Array{
		checkpoint.Of("dense", checkpoint.Parameter, layers["dense"], 100, 10),
		checkpoint.Of("head", checkpoint.Parameter, layers["head"], 10),
	}
	f, err := checkpoint.Open(path, arrays, opts)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = checkpoint.Create(path, arrays, opts)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // waits for saves under way
	state, _, err := f.Restore(arrays)
	if err != nil && !errors.Is(err, checkpoint.ErrEmpty) { // empty: a new file, start at step 0
		return err
	}
	fmt.Printf("from step %d, head[0] = %g\n", state.Step, layers["head"][0])
	for step := state.Step + 1; step <= state.Step+steps; step++ {
		save, err := f.Begin(ctx, step)
		if err != nil {
			return err
		}
		for _, name := range []string{"head", "dense"} { // in the order of a backward pass
			f.Ready(name) // the save of the step before has read this array
			for i := range layers[name] {
				layers[name][i]++ // the update of a real trainer
			}
			if err := save.Write(name, checkpoint.Bytes(layers[name])); err != nil {
				return err
			}
		}
		if err := save.Commit(checkpoint.State{Step: step}); err != nil {
			return err
		}
	}
	return nil
}
