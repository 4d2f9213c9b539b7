// Command curves trains the embedded policy's configuration from several seeds, draws the
// learning curves and judges every policy on held-out clusters. It keeps the trainings in
// out/curves and resumes one that was interrupted.
//
//	go run ./experiments/curves
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/experiments/internal/judge"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/chart"
	"github.com/evenkeel/evenkeel/internal/stats"
)

func main() {
	seeds := flag.Int("training-seeds", 5, "trainings, of seeds 1, 2, ...")
	runs := flag.String("runs", "out/curves", "folder that keeps the trainings")
	out := flag.String("out", "experiments/RESULTS.md", "file whose curves section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return run(ctx, *seeds, *runs, *out) })
}

func run(ctx context.Context, seeds int, runs, out string) error {
	var curves []curve
	strata := map[string][][][]float64{} // by setting: of every policy
	for seed := 1; seed <= seeds; seed++ {
		dir := filepath.Join(runs, fmt.Sprintf("seed-%d", seed))
		if err := train(ctx, seed, dir); err != nil {
			return err
		}
		c, err := read(filepath.Join(dir, "returns.csv"))
		if err != nil {
			return err
		}
		curves = append(curves, c)
		trained, err := agent.Load(filepath.Join(dir, "policy.safetensors"))
		if err != nil {
			return err
		}
		for _, s := range judge.Settings {
			lines, err := judge.Progress(ctx, trained, s)
			if err != nil {
				return err
			}
			strata[s.Name] = append(strata[s.Name], lines)
		}
	}
	if err := draw(curves); err != nil {
		return err
	}
	text := table(seeds, strata)
	fmt.Print(text)
	return results.Replace(out, "curves", text)
}

// train runs evenkeel train as a user would, unless the training is there.
func train(ctx context.Context, seed int, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "policy.safetensors")); err == nil {
		return nil
	}
	args := []string{"run", "./cmd/evenkeel", "train", "--seed", strconv.Itoa(seed), "--out", dir}
	if _, err := os.Stat(dir); err == nil {
		args = append(args, "--resume")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("training from seed %d: %w", seed, err)
	}
	return nil
}

// curve holds a training's moving averages by round.
type curve struct{ steps, own, team []float64 }

// read reads a training's returns.csv.
func read(path string) (curve, error) {
	f, err := os.Open(path)
	if err != nil {
		return curve{}, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return curve{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(lines) < 2 {
		return curve{}, fmt.Errorf("%s: no rounds", path)
	}
	var c curve
	for column, dst := range map[string]*[]float64{"steps": &c.steps, "return": &c.own, "team": &c.team} {
		k := slices.Index(lines[0], column)
		if k < 0 {
			return curve{}, fmt.Errorf("%s: no column %q", path, column)
		}
		for i, l := range lines[1:] {
			v, err := strconv.ParseFloat(l[k], 64)
			if err != nil {
				return curve{}, fmt.Errorf("%s:%d: %w", path, i+2, err)
			}
			*dst = append(*dst, v)
		}
	}
	return c, nil
}

// draw draws the mean over trainings with the range around it.
func draw(curves []curve) error {
	shortest := slices.MinFunc(curves, func(a, b curve) int { return len(a.steps) - len(b.steps) })
	panel := func(label string, of func(curve) []float64) chart.Panel {
		n := len(shortest.steps)
		mean, low, high := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			low[i], high[i] = math.Inf(1), math.Inf(-1)
			for _, c := range curves {
				v := of(c)[i]
				mean[i] += v / float64(len(curves))
				low[i], high[i] = min(low[i], v), max(high[i], v)
			}
		}
		return chart.Panel{XLabel: "rounds of training", YLabel: label, Series: []chart.Series{
			{Name: fmt.Sprintf("mean of %d training seeds", len(curves)), Kind: chart.Line, X: shortest.steps, Y: mean},
			{Kind: chart.Band, X: shortest.steps, Low: low, High: high},
		}}
	}
	f := chart.Figure{Title: "Learning curves", Panels: []chart.Panel{
		panel("own reward per round and node", func(c curve) []float64 { return c.own }),
		panel("team: progress - 1", func(c curve) []float64 { return c.team }),
	}}
	return errors.Join(f.Save("experiments/curves/curves.svg"), f.Save("experiments/curves/curves.png"))
}

func table(seeds int, strata map[string][][][]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/curves\n\n%d trainings with the embedded policy's configuration, of seeds 1 (the embedded policy) to %d; judged on held-out clusters of 16 and 32 nodes,\n%d seeds of %d rounds each. Progress is goodput over the state oracle's that waits for all, mean with its 95%% interval.\n\n![learning curves](curves/curves.svg)\n", seeds, seeds, judge.Seeds, judge.Rounds)
	for _, s := range judge.Settings {
		fmt.Fprintf(&b, "\n### %s\n\n| training seed | %s |\n|---|%s\n", s.Name, strings.Join(judge.Scenarios, " | "), strings.Repeat("---|", len(judge.Scenarios)))
		for i, lines := range strata[s.Name] {
			fmt.Fprintf(&b, "| %d |", i+1)
			for k := range judge.Scenarios {
				var own [][]float64
				for j := k; j < len(lines); j += len(judge.Scenarios) {
					own = append(own, lines[j])
				}
				e := stats.Bootstrap(own)
				fmt.Fprintf(&b, " %.4f (%.4f to %.4f) |", e.Mean, e.Low, e.High)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
