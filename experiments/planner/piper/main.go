// Command piper searches plans by the cost function of Piper on Piper's measurements, and writes the comparison into
// experiments/planner/RESULTS.md:
//
//	go run ./experiments/planner/piper -data folder/with/piper
//
// The measurements are inputs/bert32a100.json of msr-fiddle/piper at d7fc8cf9.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/planner"
)

func main() {
	data := flag.String("data", "../shared/data/planner", "folder that has piper/bert32a100.json")
	out := flag.String("out", "experiments/planner/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, filepath.Join(*data, "piper", "bert32a100.json"), *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// published is what Piper's own code came to on the same input, and in which time, on two cores.
var published = []struct {
	devices            int
	seconds, searching float64
}{{64, 0.06607, 0.96}, {1024, 0.005088, 15.1}}

func compare(ctx context.Context, path, out string) error {
	g, err := readGraph(path, 96)
	if err != nil {
		return err
	}
	// Those of Piper's experiment of 8 GB per device.
	g.Limit, g.Bandwidth, g.Batch = 8<<30, 25<<30, 512
	var b strings.Builder
	b.WriteString(head)
	for _, p := range published {
		fmt.Fprintf(&b, "| %d | Piper's own run | %.4g s | %.2f s |\n", p.devices, p.seconds, p.searching)
		start := time.Now()
		seconds, stages := newCosts(g, p.devices).exact()
		if stages == nil {
			return fmt.Errorf("piper: no plan for %d devices", p.devices)
		}
		fmt.Fprintf(&b, "| | exact, made for the slowest stage, %d stages | %.4g s | %.2f s |\n", len(stages), seconds, time.Since(start).Seconds())
		start = time.Now()
		seconds, stages, err = newCosts(g, p.devices).search(ctx, planner.SearchOptions{})
		if err != nil {
			return fmt.Errorf("piper: %d devices: %w", p.devices, err)
		}
		fmt.Fprintf(&b, "| | planner.Search, stages with equally many replicas, %d stages | %.4g s | %.2f s |\n", len(stages), seconds, time.Since(start).Seconds())
		fmt.Fprintf(os.Stderr, "%d devices done\n", p.devices)
	}
	fmt.Print(b.String())
	return results.Replace(out, "piper", b.String())
}

const head = `    go run ./experiments/planner/piper

BERT of 96 layers on A100s of 8 GB, 25 GiB/s, 512 micro-batches in a batch; Piper's measurements and cost function: seconds of a sample in
the slowest stage.

| devices | search | a sample | searched in |
|---|---|---|---|
`
