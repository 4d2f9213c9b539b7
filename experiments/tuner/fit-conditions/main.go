// Fit-conditions shows how the presets of cluster/conditions.go follow from measurements.
//
//	go run ./experiments/tuner/fit-conditions ../shared/data
//
// It reads variability/*.csv, gavel/gavel_colocation.csv and zeus/powercap_slowdown.csv
// under the folder, derives every fitted parameter again (derive.go says how), runs the
// simulator under the presets and takes the same measurements of it (measure.go, one
// function for both sides). Beside it in experiments/tuner/fit-conditions (or in the folder
// given as second argument) it writes fit.md, fit.svg and fit.png. The same data gives the same bytes.
//
// The rates and lengths of episodes, failures and joins follow from the purpose of a preset.
// They are not fitted and not checked here, except for the length of bursts. The preset
// production is fitted in all its parts (jobs.go), and judged on halves of the jobs (production.go).
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/experiments/internal/program"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: fit-conditions DATA [OUT]")
		os.Exit(2)
	}
	out := filepath.Join("experiments", "fit-conditions")
	if len(os.Args) == 3 {
		out = os.Args[2]
	}
	program.Main(func(ctx context.Context) error { return run(ctx, os.Args[1], out) })
}

func run(ctx context.Context, folder, out string) error {
	d, err := readData(folder)
	if err != nil {
		return err
	}
	params, others, err := derive(d)
	if err != nil {
		return err
	}
	ofJobs, err := deriveJobs(d)
	if err != nil {
		return err
	}
	params = append(params, ofJobs...)
	c, err := compare(ctx, d)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	report(&text, d, params, others, c)
	fmt.Print(text.String())
	for _, name := range []string{"fit.svg", "fit.png"} {
		if err := c.figure().Save(filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return renameio.WriteFile(filepath.Join(out, "fit.md"), text.Bytes(), 0o644)
}
