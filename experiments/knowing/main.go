// Command knowing asks how near to the lag-1 oracle with margins anybody can come who has to measure: it sets beside it a Kalman filter that is
// told each node's noise and the drift's two numbers, and the best margin of every run afterwards. It writes its table into experiments/RESULTS.md.
//
//	go run ./experiments/knowing
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
	"github.com/evenkeel/evenkeel/agent/baseline"
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

func main() {
	seeds := flag.Int("seeds", 10, "seeds of a cluster")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return measure(ctx, *seeds, *out) })
}

// margins, in true deviations; the best of every run counts, for the oracle and the filters alike.
var margins = []float64{0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2}

// contender is a policy, or several of which the best of a run counts.
type contender struct {
	name   string
	points int
	create func(c *cluster.Cluster, s *sim.Simulator, point int) agent.Policy
}

func measure(ctx context.Context, seeds int, out string) error {
	begun := time.Now()
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Gap to the lag-1 oracle with margins, in points of progress (goodput over the state oracle's), %d seeds on the held-out clusters of 8 to 64 nodes, by\n\n    go run ./experiments/knowing\n\n| conditions | rounds | filter that knows noise and drift, the best margin of each run afterwards | the same margin for all runs, the best afterwards | ddqn | model |\n|---|---|---|---|---|---|\n", seeds)
	for _, name := range []string{"steady", "drift"} {
		conditions, err := cluster.Preset(name)
		if err != nil {
			return err
		}
		for _, rounds := range []int{400, 2000} {
			contenders := []contender{
				{"lag1-margin", len(margins), func(c *cluster.Cluster, s *sim.Simulator, k int) agent.Policy {
					return baseline.NewOracle(c, s, baseline.Oracle{Lag: 1, Margin: margins[k]})
				}},
				{"filter", len(margins), func(c *cluster.Cluster, s *sim.Simulator, k int) agent.Policy {
					return newFilter(c, s, &conditions, margins[k])
				}},
				{"ddqn", 1, func(c *cluster.Cluster, _ *sim.Simulator, _ int) agent.Policy {
					return trained.NewAgent(c, [env.Objectives]float64{1})
				}},
				{"model", 1, func(c *cluster.Cluster, _ *sim.Simulator, _ int) agent.Policy { return agent.NewModel(c) }},
			}
			if err := row(ctx, &b, name, conditions, rounds, seeds, contenders); err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, time.Since(begun).Round(time.Second), name, rounds)
		}
	}
	fmt.Print(b.String())
	return results.Replace(out, "knowing", b.String())
}

// row plays every contender, the first of which is what the others are compared with.
func row(ctx context.Context, b *strings.Builder, name string, conditions cluster.Conditions, rounds, seeds int, contenders []contender) error {
	gaps := make([][][]float64, len(contenders))
	fixed := make([][][]float64, len(margins)) // of the filter, by margin
	for _, site := range clusters.HeldOut {
		_, c, err := clusters.Load(site, profile.Embedded())
		if err != nil {
			return err
		}
		progress := make([][][]float64, seeds) // by contender and point
		failed := make([]error, seeds)
		var group sync.WaitGroup
		for seed := range seeds {
			group.Go(func() {
				play := func(create func(s *sim.Simulator) agent.Policy) float64 {
					s := sim.New(c, conditions, uint64(seed))
					score, err := evaluation.Play(ctx, c, s, create(s), rounds, nil, nil)
					if err != nil {
						failed[seed] = err
					}
					return score.Goodput
				}
				oracle := play(func(s *sim.Simulator) agent.Policy { return baseline.NewOracle(c, s, baseline.Oracle{}) })
				for _, p := range contenders {
					var points []float64
					for k := range p.points {
						points = append(points, play(func(s *sim.Simulator) agent.Policy { return p.create(c, s, k) })/oracle)
					}
					progress[seed] = append(progress[seed], points)
				}
			})
		}
		group.Wait()
		row := make([][]float64, len(contenders))
		byMargin := make([][]float64, len(margins))
		for seed, err := range failed {
			if err != nil {
				return fmt.Errorf("%s, %s, seed %d: %w", name, site, seed, err)
			}
			best := most(progress[seed][0])
			for k, points := range progress[seed] {
				row[k] = append(row[k], 100*(best-most(points)))
			}
			for k, v := range progress[seed][1] {
				byMargin[k] = append(byMargin[k], 100*(best-v))
			}
		}
		for k := range row {
			gaps[k] = append(gaps[k], row[k])
		}
		for k := range byMargin {
			fixed[k] = append(fixed[k], byMargin[k])
		}
	}
	least, at := stats.Bootstrap(fixed[0]), 0
	for k := range fixed {
		if i := stats.Bootstrap(fixed[k]); i.Mean < least.Mean {
			least, at = i, k
		}
	}
	f, d, m := stats.Bootstrap(gaps[1]), stats.Bootstrap(gaps[2]), stats.Bootstrap(gaps[3])
	text := func(i stats.Interval) string { return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Mean, i.Low, i.High) }
	fmt.Fprintf(b, "| %s | %d | %s | %s, margin %g | %s | %s |\n", name, rounds, text(f), text(least), margins[at], text(d), text(m))
	return nil
}

func most(v []float64) float64 {
	best := math.Inf(-1)
	for _, x := range v {
		best = max(best, x)
	}
	return best
}
