// Command batch asks where the best global batch is, and where the agent's is: it plays every held-out cluster at three stages of training
// with every batch that the agent may choose, held for the whole run, and once with the choice left to the agent. It writes its table
// into experiments/RESULTS.md.
//
//	go run ./experiments/batch
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
)

const (
	rounds = 300
	sizes  = 40 // as many as the agent tries, geometrically spaced between the bounds
)

func main() {
	seeds := flag.Int("seeds", 20, "seeds of a cell")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return measure(ctx, *seeds, *out) })
}

// stage is a noise scale over the named batch.
type stage struct {
	name  string
	scale float64
}

func measure(ctx context.Context, seeds int, out string) error {
	begun := time.Now()
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	base, err := cluster.Preset("steady")
	if err != nil {
		return err
	}
	stages := []stage{{"beginning", base.Scale.Start}, {"middle", math.Sqrt(base.Scale.Start * base.Scale.End)}, {"end", base.Scale.End}}
	var b strings.Builder
	var inner, sure []float64 // shares of decisions strictly between the bounds, where the best batch is
	for _, name := range clusters.HeldOut {
		for _, s := range stages {
			conditions := base
			conditions.Scale.Start, conditions.Scale.End = s.scale, s.scale
			c, err := play(ctx, trained, name, conditions, seeds)
			if err != nil {
				return err
			}
			c.row(&b, name, s.name)
			if k := c.best(); k > 0 && k < sizes-1 {
				inner = append(inner, c.between)
				if gain(c.goodput[k], c.goodput[0]).Low > 0 && gain(c.goodput[k], c.goodput[sizes-1]).Low > 0 {
					sure = append(sure, c.between)
				}
			}
			fmt.Fprintln(os.Stderr, time.Since(begun).Round(time.Second), name, s.name)
		}
	}
	head := fmt.Sprintf("Made by\n\n    go run ./experiments/batch\n\nin %v: %d seeds of %d rounds in steady conditions, quorum and grace free, the embedded policy; gradient noise scales of %.1f, %.1f and %.0f times the named batch. Best: of %d batches from a quarter to four times the named one, each held for the whole run, the one of the highest goodput. Level: the batches that are not\nbelow it beyond the interval over seeds. Gains are of goodput, of the best batch over the bounds, and of the agent with the choice over the best batch held. Of the agent's decisions in the %d cells whose best batch lies strictly between the bounds %.0f%% do too; in the %d of these in which it is above both bounds beyond the interval %.0f%%.\n\n| cluster | stage | best, of the named | level | above the lower bound | above the upper bound | agent's, in the median | strictly between | agent over the best |\n|---|---|---|---|---|---|---|---|---|\n",
		time.Since(begun).Round(time.Second), seeds, rounds, stages[0].scale, stages[1].scale, stages[2].scale, sizes, len(inner), 100*mean(inner), len(sure), 100*mean(sure))
	fmt.Print(head + b.String())
	return results.Replace(out, "batch", head+b.String())
}

// cell is what a cluster makes of every batch at a stage.
type cell struct {
	named   float64     // samples
	batches []int       // held
	goodput [][]float64 // by batch and seed
	free    []float64   // the agent's, by seed
	between float64     // share of its decisions strictly between the bounds
	chosen  []float64   // its batches, round by round
}

func play(ctx context.Context, trained *agent.Trained, name string, conditions cluster.Conditions, seeds int) (*cell, error) {
	_, c, err := clusters.Load(name, profile.Embedded())
	if err != nil {
		return nil, err
	}
	named := c.GlobalBatch
	least, most := max(named/4, len(c.Nodes)), 4*named
	x := &cell{named: float64(named)}
	for k := range sizes {
		size := int(math.Round(float64(least) * math.Pow(float64(most)/float64(least), float64(k)/float64(sizes-1))))
		x.batches = append(x.batches, size)
	}
	x.goodput, x.free = make([][]float64, sizes), make([]float64, seeds)
	for k := range x.goodput {
		x.goodput[k] = make([]float64, seeds)
	}
	inside := make([]float64, seeds)
	chosen := make([][]float64, seeds)
	failed := make([]error, seeds)
	var group sync.WaitGroup
	for seed := range seeds {
		group.Go(func() {
			for k, size := range append(x.batches, 0) {
				own := *c
				own.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
				if size > 0 {
					own.GlobalBatch = size
				} else {
					own.Choices.LeastBatch, own.Choices.MostBatch = named/4, most
				}
				a := trained.NewAgent(&own, [env.Objectives]float64{1})
				score, err := evaluation.Play(ctx, c, sim.New(c, conditions, uint64(seed)), a, rounds, nil, func(agent.Round) {
					if size == 0 {
						batch := a.GlobalBatch()
						chosen[seed] = append(chosen[seed], float64(batch))
						if batch > least && batch < most {
							inside[seed] += 1 / float64(rounds)
						}
					}
				})
				if err != nil {
					failed[seed] = err
					return
				}
				if size > 0 {
					x.goodput[k][seed] = score.Goodput
				} else {
					x.free[seed] = score.Goodput
				}
			}
		})
	}
	group.Wait()
	for seed, err := range failed {
		if err != nil {
			return nil, fmt.Errorf("%s, seed %d: %w", name, seed, err)
		}
		x.between += inside[seed] / float64(seeds)
		x.chosen = append(x.chosen, chosen[seed]...)
	}
	return x, nil
}

// gain is by how much a makes more goodput than b, relatively, paired by seed.
func gain(a, b []float64) stats.Interval {
	var ratios []float64
	for seed := range a {
		ratios = append(ratios, a[seed]/b[seed]-1)
	}
	return stats.Bootstrap([][]float64{ratios})
}

// best is the batch of the highest mean goodput.
func (x *cell) best() int {
	best, most := 0, 0.0
	for k, g := range x.goodput {
		if m := mean(g); m > most {
			best, most = k, m
		}
	}
	return best
}

func (x *cell) row(b *strings.Builder, name, stage string) {
	best := x.best()
	g := x.goodput[best]
	from, to := best, best
	for from > 0 && gain(g, x.goodput[from-1]).Low <= 0 {
		from--
	}
	for to+1 < sizes && gain(g, x.goodput[to+1]).Low <= 0 {
		to++
	}
	of := func(k int) float64 { return float64(x.batches[k]) / x.named }
	low, high, free := gain(g, x.goodput[0]), gain(g, x.goodput[sizes-1]), gain(x.free, g)
	fmt.Fprintf(b, "| %s | %s | %.2f | %.2f to %.2f | %+.1f%% | %+.1f%% | %.2f | %.0f%% | %+.1f%% (%+.1f to %+.1f) |\n",
		name, stage, of(best), of(from), of(to), 100*low.Mean, 100*high.Mean, median(x.chosen)/x.named, 100*x.between, 100*free.Mean, 100*free.Low, 100*free.High)
}

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}

func median(v []float64) float64 {
	return stats.Select(v, len(v)/2)
}
