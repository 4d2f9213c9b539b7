package peerprofile_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/planner/peerprofile"
)

func ExamplePiper() {
	dir, err := os.MkdirTemp("", "piper")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "tiny.json")
	const input = `{"mbsInBatch": 8, "nodes": [
  {"id": 1, "name": "embed", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.003, "parameterSize": 4000, "memoryUsageA": 100}]}},
  {"id": 2, "name": "block", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.006, "parameterSize": 8000, "memoryUsageA": 500}]}}],
 "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 64}]}`
	if err := os.WriteFile(path, []byte(input), 0o600); err != nil {
		log.Fatal(err)
	}
	// Sailor, Metis and Galvatron read the profiles of those planners.
	p, err := peerprofile.Piper(path, "a100")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range p.Layers {
		fmt.Println(l.Name, l.Parameters, l.Output, l.Runs[0].Activation)
	}
	// Output:
	// embed1 1000 64 100
	// block2 2000 0 500
}
