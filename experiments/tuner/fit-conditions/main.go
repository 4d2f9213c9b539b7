// Fit-conditions shows how the presets of cluster/conditions.go follow from measurements. It prints the tables of
// docs/results/tuner.md.
//
//	go run ./experiments/tuner/fit-conditions ../shared/data
//
// It reads variability/{cnn_step_ms,pai_cross_worker_cov,pai_minibatch_time,bytedance_microbatch_ms}.csv,
// gavel/gavel_colocation.csv and zeus/powercap_slowdown.csv under the folder, derives every fitted parameter again
// (derive.go says how), runs the simulator under the presets and takes the same measurements of it (measure.go, one
// function for both sides). The same data gives the same bytes.
//
// The rates and lengths of episodes, failures and joins follow from the purpose of a preset.
// They are not fitted and not checked here, except for the length of bursts. The preset
// production is fitted in all its parts (jobs.go), and judged on halves of the jobs (production.go).
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"evenkeel/experiments/internal/program"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fit-conditions DATA")
		os.Exit(2)
	}
	program.Main(func(ctx context.Context) error { return run(ctx, os.Args[1], os.Stdout) })
}

func run(ctx context.Context, folder string, out io.Writer) error {
	d, err := readData(folder)
	if err != nil {
		return err
	}
	params, err := derive(d)
	if err != nil {
		return err
	}
	ofJobs, err := deriveJobs(d)
	if err != nil {
		return err
	}
	c, err := compare(ctx, d)
	if err != nil {
		return err
	}
	report(out, d, append(params, ofJobs...), c)
	return nil
}
