// Command galvatron searches plans by the cost function of Galvatron, on Galvatron's own measurements, with the planner's
// search and with Galvatron's, and writes the comparison into experiments/planner/RESULTS.md:
//
//	go run ./experiments/planner/galvatron -data folder/with/galvatron
//
// The measurements (llama2-7b on 8 GPUs) are those of PKU-DAIR/Hetu-Galvatron at cea12ffb: configs/ of its llama model and
// hardware_configs/ of its profiler.
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
)

func main() {
	data := flag.String("data", "../shared/data/planner", "folder that has galvatron/configs and galvatron/hardware_configs")
	out := flag.String("out", "experiments/planner/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, filepath.Join(*data, "galvatron"), *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// published is the outcome of Galvatron's own code on the same input, and its time on two cores.
var published = []struct {
	gigabytes int
	seconds   float64
	searching time.Duration
}{{38, 4.1808, 155 * time.Second}, {20, 5.0537, 217 * time.Second}, {16, 5.8733, 77 * time.Second}}

func run(ctx context.Context, dir, out string) error {
	measured, err := readProfile(dir, "llama2-7b", 2048)
	if err != nil {
		return err
	}
	begun := time.Now()
	var table, plans strings.Builder
	for _, p := range published {
		m := &model{measured, setting{layers: 32, hidden: 4096, sequence: 2048, batch: 64, devices: 8, limit: p.gigabytes * 1024}}
		fmt.Fprintf(&table, "| %d GB | Galvatron's own run | %.4f s | | %.0f s |\n", p.gigabytes, p.seconds, p.searching.Seconds())
		add := func(what string, plan *plan, start time.Time) {
			fmt.Fprintf(&table, "| | %s | %.4f s | %.4f s | %.2f s |\n", what, plan.seconds, m.counted(plan), time.Since(start).Seconds())
			fmt.Fprintf(&plans, "- %d GB, %s: %v\n", p.gigabytes, what, plan)
		}
		start := time.Now()
		theirs := m.peer(func(chunks int) {
			fmt.Fprintf(os.Stderr, "%v: Galvatron's search, %d GB, up to %d of %d micro-batches\n", time.Since(begun).Round(time.Second), p.gigabytes, chunks, m.batch)
		})
		if theirs == nil {
			return fmt.Errorf("galvatron: no plan fits %d GB", p.gigabytes)
		}
		add("Galvatron's search, built here", theirs, start)
		for _, equal := range []bool{true, false} {
			start = time.Now()
			ours, _, err := m.search(ctx, equal)
			if err != nil {
				return fmt.Errorf("galvatron: %d GB: %w", p.gigabytes, err)
			}
			if over := m.over(ours); over > 0 {
				return fmt.Errorf("galvatron: %d GB: the plan that was found takes %d MB too many", p.gigabytes, over)
			}
			name := "planner/search, any stages"
			if equal {
				name = "planner/search, equal stages"
			}
			add(name, ours, start)
		}
	}
	text := head + table.String() + "\nThe plans, stage by stage:\n\n" + plans.String()
	fmt.Print(text)
	return results.Replace(out, "galvatron", text)
}

const head = `    go run ./experiments/planner/galvatron

llama2-7b on 8 GPUs, global batch 64, sequences of 2048, Galvatron's measurements and cost function, so that only the searches differ.
Seconds of an iteration: by Galvatron's formula, and with every stage counted (the sum of the stages' micro-batches, the slowest
stage's other micro-batches, the longest reduction of gradients that nothing hides). Galvatron's formula looks at the first and the
last stage only; one in between counts once, however slow it is. So over equal stages, which are all that Galvatron tries, the
search goes by Galvatron's formula with no stage longer than the iteration, and over stages of any length by the second number, of
which it gives the exact least.

Galvatron's settings are those, of the ones tried, under which its search, built here after its source, gives its three published
numbers to their digits: gradients and optimizer states sharded (zero2), one forward, one backward, gradients reduced once per
iteration, no memory for gathered activations, times of collectives as measured where they were. Neither cost charges for layers
that follow others of another degree; Galvatron's search does, in between. At 20 GB the plan over any stages is above the one over
equal stages by Galvatron's formula, and below it with every stage counted.

| memory | search | Galvatron's formula | every stage counted | searched in |
|---|---|---|---|---|
`
