// Command threshold trains and judges a controller of another kind than this project's: a Double-DQN network that sees nothing but measured
// times and chooses a time within which a node must be to take part (as ATCS-FL does). It writes its table into experiments/RESULTS.md.
//
//	go run ./experiments/threshold
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/agent/training"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
)

const rounds = 400 // of a run

func main() {
	steps := flag.Int("steps", 480_000, "rounds of training")
	gamma := flag.Float64("gamma", 0.9, "discount per round")
	seed := flag.Uint64("seed", 1, "seed of the training")
	seeds := flag.Int("seeds", 10, "seeds to judge on")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return run(ctx, *steps, *gamma, *seed, *seeds, *out) })
}

func run(ctx context.Context, steps int, gamma float64, seed uint64, seeds int, out string) error {
	sampler, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return err
	}
	begun := time.Now()
	net, err := train(ctx, steps, seed, gamma, sampler.Episode)
	if err != nil {
		return err
	}
	trained := time.Since(begun)
	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/threshold\n\nProgress (goodput over the state oracle's), %d seeds of %d rounds on the held-out clusters of 8 to 64 nodes, all gradients waited for; %d rounds of training in %v. Fixed: the one threshold that is best on the judged seeds themselves.\n\n", seeds, rounds, steps, trained.Round(time.Second))
	b.WriteString("| conditions | uniform | learned threshold | 95% | fixed threshold, over the median's time | ddqn |\n|---|---|---|---|---|---|\n")
	for _, name := range []string{"steady", "drift", "interference", "bursts", "failures"} {
		if err := row(ctx, &b, name, net, seeds); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, time.Since(begun).Round(time.Second), name)
	}
	fmt.Print(b.String())
	return results.Replace(out, "threshold", b.String())
}

// row judges under a preset.
func row(ctx context.Context, b *strings.Builder, name string, net *ddqn.Network, seeds int) error {
	conditions, err := cluster.Preset(name)
	if err != nil {
		return err
	}
	specs, err := evaluation.Find([]string{"oracle", "uniform", "ddqn"})
	if err != nil {
		return err
	}
	embedded, err := agent.Embedded()
	if err != nil {
		return err
	}
	const first = 3 // policies after the oracle, uniform and ddqn: learned, then the fixed ones
	progress := make([][][]float64, first+1+len(limits))
	for _, site := range clusters.HeldOut {
		_, c, err := clusters.Load(site, profile.Embedded())
		if err != nil {
			return err
		}
		values := make([][]float64, len(progress))
		for seed := range uint64(seeds) {
			reference := 0.0
			for k := range progress {
				s := sim.New(c, conditions, seed)
				var p agent.Policy
				switch {
				case k < first:
					p = specs[k].New(c, s, embedded, [env.Objectives]float64{1}, 0)
				case k == first:
					p = newThreshold(c, net)
				default:
					fixed := newThreshold(c, nil)
					fixed.action = k - first - 1
					p = fixed
				}
				score, err := evaluation.Play(ctx, c, s, p, rounds, nil, nil)
				if err != nil {
					return fmt.Errorf("%s, %s, seed %d: %w", name, site, seed, err)
				}
				if k == 0 {
					reference = score.Goodput
				}
				values[k] = append(values[k], score.Goodput/reference)
			}
		}
		for k := range progress {
			progress[k] = append(progress[k], values[k])
		}
	}
	fixed, limit := 0.0, 0.0
	for k := first + 1; k < len(progress); k++ {
		if m := stats.Bootstrap(progress[k]).Mean; m > fixed {
			fixed, limit = m, limits[k-first-1]
		}
	}
	learned := stats.Bootstrap(progress[first])
	fmt.Fprintf(b, "| %s | %.4f | %.4f | %.4f to %.4f | %.4f (%g) | %.4f |\n", name, stats.Bootstrap(progress[1]).Mean, learned.Mean, learned.Low, learned.High, fixed, limit, stats.Bootstrap(progress[2]).Mean)
	return nil
}
