// Command ablation trains the policy without one part of the method at a time, with the
// same budget and seeds, and judges all of them on the held-out suite. It writes its table into
// experiments/RESULTS.md.
//
//	go run ./experiments/ablation
//	go run ./experiments/ablation -steps 120000 -training-seeds 1 -variants no-future # a few of them; writes nothing
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/training"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/experiments/internal/judge"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
)

func main() {
	steps := flag.Int("steps", 300_000, "rounds of training each")
	seeds := flag.Int("training-seeds", 3, "trainings of each variant")
	only := flag.String("variants", "", "variants, with commas, to print beside the whole method; none: all, into the results")
	out := flag.String("out", "experiments/RESULTS.md", "file whose ablation section is replaced")
	flag.Parse()
	variants := training.Variants
	if *only != "" {
		variants, *out = strings.Split(*only, ","), ""
	}
	program.Main(func(ctx context.Context) error { return run(ctx, variants, *steps, *seeds, *out) })
}

func run(ctx context.Context, variants []string, steps, seeds int, out string) error {
	begun := time.Now()
	variants = append([]string{""}, variants...)
	strata := map[string]map[string][][]float64{} // by setting and variant: a stratum per cluster, scenario and training seed
	for _, s := range judge.Settings {
		strata[s.Name] = map[string][][]float64{}
	}
	for k, v := range variants {
		for seed := range seeds {
			fmt.Fprintf(os.Stderr, "%v: training %d of %d (%s)\n", time.Since(begun).Round(time.Second), k*seeds+seed+1, len(variants)*seeds, name(v))
			trained, err := train(ctx, training.Config{Seed: uint64(seed + 1), Steps: steps, Variant: v})
			if err != nil {
				return err
			}
			for _, s := range judge.Settings {
				lines, err := judge.Progress(ctx, trained, s)
				if err != nil {
					return err
				}
				strata[s.Name][v] = append(strata[s.Name][v], lines...)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/ablation -steps %d -training-seeds %d\n\nin %v on %d cores: %d trainings of each variant, %d rounds each, judged on held-out clusters of 16 and 32 nodes under\n%s, %d seeds of %d rounds each.\n", steps, seeds, time.Since(begun).Round(time.Second), runtime.NumCPU(), seeds, steps, strings.Join(judge.Scenarios, ", "), judge.Seeds, judge.Rounds)
	b.WriteString("Interquartile mean of progress (goodput over the state oracle's that waits for all), with its 95% interval by a bootstrap stratified by cluster, scenario and training seed;\ndifference: mean of the paired differences to the whole method.\n")
	for _, s := range judge.Settings {
		fmt.Fprintf(&b, "\n### %s\n\n| variant | IQM | 95%% | mean difference | 95%% |\n|---|---|---|---|---|\n", s.Name)
		whole := strata[s.Name][""]
		for _, v := range variants {
			mine := strata[s.Name][v]
			differences := make([][]float64, len(mine))
			for i := range mine {
				for j := range mine[i] {
					differences[i] = append(differences[i], mine[i][j]-whole[i][j])
				}
			}
			q, d := stats.IQM(mine), stats.Bootstrap(differences)
			fmt.Fprintf(&b, "| %s | %.4f | %.4f to %.4f | %+.4f | %+.4f to %+.4f |\n", name(v), q.Mean, q.Low, q.High, d.Mean, d.Low, d.High)
		}
	}
	fmt.Print(b.String())
	if out == "" {
		return nil
	}
	return results.Replace(out, "ablation", b.String())
}

func name(variant string) string {
	if variant == "" {
		return "the whole method"
	}
	return variant
}

func train(ctx context.Context, config training.Config) (*agent.Trained, error) {
	t, err := training.NewTrainer(profile.Embedded(), config)
	if err != nil {
		return nil, err
	}
	if err := t.Run(ctx, nil); err != nil {
		return nil, err
	}
	return t.Trained(), nil
}
