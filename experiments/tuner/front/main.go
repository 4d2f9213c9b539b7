// Command front shows what preferences buy: goodput, busy time, freshness and energy of the agent over a
// sweep of weights, against every baseline swept over its hyperparameters, on held-out clusters
// with quorum and grace free. It prints the tables of docs/results/tuner.md: hypervolumes, each objective as its weight
// rises, and joules per sample.
//
//	go run ./experiments/tuner/front
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/experiments/internal/program"
	"evenkeel/internal/parallel"
	"evenkeel/internal/stats"
	"evenkeel/lab/evaluation"
)

func main() {
	seeds := flag.Int("seeds", 30, "seeds to judge on")
	rounds := flag.Int("rounds", 200, "rounds per run")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return run(ctx, *seeds, *rounds) })
}

var scenarios = []string{"steady", "drift", "interference", "bursts", "failures"}

// family is a policy with all its settings, each a point of its front.
type family struct {
	name   string
	points int
	create func(c *cluster.Cluster, s *sim.Simulator, point int) agent.Policy
}

// weights returns the preferences of the sweep: all mixes of speed, waiting and freshness in
// twelfths, about as many as the fixed rules have settings.
var weights = func() [][env.Objectives]float64 {
	const parts = 12
	var all [][env.Objectives]float64
	for s := range parts + 1 {
		for w := range parts + 1 - s {
			all = append(all, [env.Objectives]float64{float64(s) / parts, float64(w) / parts, float64(parts-s-w) / parts})
		}
	}
	return all
}()

// families are the agent, its fallback rule, and water-filling under every fixed rule and margin.
func families(t *agent.Trained) []family {
	margins := []float64{0, 0.5, 1}
	return []family{
		{"ddqn", len(weights), func(c *cluster.Cluster, _ *sim.Simulator, k int) agent.Policy { return t.NewAgent(c, weights[k]) }},
		{"waterfill-margin (quorum all)", 8, func(c *cluster.Cluster, _ *sim.Simulator, k int) agent.Policy {
			return baseline.NewWaterFill(c, baseline.WaterFill{Gain: []float64{0.1, 0.5}[k%2], Margin: []float64{0, 0.5, 1, 1.5}[k/2]})
		}},
		{"kofn", len(cluster.Rules) * len(margins), func(c *cluster.Cluster, _ *sim.Simulator, k int) agent.Policy {
			return baseline.WithRule(baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.35, Margin: margins[k%len(margins)]}), cluster.Rules[k/len(margins)])
		}},
		{"kofn with change detection", len(cluster.Rules) * len(margins), func(c *cluster.Cluster, _ *sim.Simulator, k int) agent.Policy {
			return baseline.WithRule(baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.2, Margin: margins[k%len(margins)], CUSUM: 4}), cluster.Rules[k/len(margins)])
		}},
	}
}

// point holds the objectives that one setting of a policy reached on each seed: progress,
// busy share, fresh share.
type point [][3]float64

// mean returns the mean over the picked seeds.
func (p point) mean(pick []int) []float64 {
	m := make([]float64, 3)
	for _, i := range pick {
		for o, v := range p[i] {
			m[o] += v / float64(len(pick))
		}
	}
	return m
}

func run(ctx context.Context, seeds, rounds int) error {
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	begun := time.Now()
	all := families(trained)
	var b, mono strings.Builder
	fmt.Fprintf(&b, "\n| cluster | scenario |")
	for _, f := range all {
		fmt.Fprintf(&b, " %s |", f.name)
	}
	b.WriteString(" ddqn above the best other | 95% |\n|---|---|" + strings.Repeat("---|", len(all)+2) + "\n")
	mono.WriteString("\n| cluster | scenario | progress | busy share | fresh share |\n|---|---|---|---|---|\n")
	for _, name := range []string{"heldout-16", "heldout-32"} {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err != nil {
			return err
		}
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
		for _, scenario := range scenarios {
			conditions, err := cluster.Preset(scenario)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%v: %s, %s\n", time.Since(begun).Round(time.Second), name, scenario)
			g := game{ctx: ctx, cluster: c, conditions: conditions, rounds: rounds, seeds: seeds}
			if err := g.bases(); err != nil {
				return err
			}
			fronts := make([][]point, len(all))
			for k, f := range all {
				if fronts[k], err = g.play(f); err != nil {
					return err
				}
			}
			volumes(&b, name, scenario, seeds, fronts)
			if err := g.monotone(&mono, name, scenario, trained); err != nil {
				return err
			}
		}
	}
	var joules strings.Builder
	if err := energy(&joules, game{ctx: ctx, rounds: rounds, seeds: seeds}, trained, all[2]); err != nil {
		return err
	}
	fmt.Printf("%d seeds of %d rounds, in %v on %d cores (%s/%s). Hypervolume:\n%s\nEach objective at weights 0.2, 0.5 and 1, the rest evenly on the other two:\n%s\nJoules per counted sample, and progress:\n%s",
		seeds, rounds, time.Since(begun).Round(time.Second), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, b.String(), mono.String(), joules.String())
	return nil
}

// game is one cluster under one scenario.
type game struct {
	ctx        context.Context
	cluster    *cluster.Cluster
	conditions cluster.Conditions
	rounds     int
	seeds      int
	base       []float64 // the state oracle's goodput
}

func (g *game) bases() error {
	scores, err := g.scores(1, func(s *sim.Simulator, _ int) agent.Policy { return baseline.NewOracle(g.cluster, s, baseline.Oracle{}) })
	if err != nil {
		return err
	}
	g.base = nil
	for _, s := range scores[0] {
		g.base = append(g.base, s.Goodput)
	}
	return nil
}

func (g *game) play(f family) ([]point, error) {
	scores, err := g.scores(f.points, func(s *sim.Simulator, k int) agent.Policy { return f.create(g.cluster, s, k) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	points := make([]point, f.points)
	for k := range points {
		for i, s := range scores[k] {
			points[k] = append(points[k], [3]float64{s.Goodput / g.base[i], 1 - s.Waiting, s.Freshness})
		}
	}
	return points, nil
}

// scores runs every point on every seed, on all processors.
func (g *game) scores(points int, create func(s *sim.Simulator, point int) agent.Policy) ([][]evaluation.Score, error) {
	out := make([][]evaluation.Score, points)
	for k := range out {
		out[k] = make([]evaluation.Score, g.seeds)
	}
	return out, parallel.Each(points*g.seeds, func(t int) (err error) {
		k, seed := t/g.seeds, t%g.seeds
		s := sim.New(g.cluster, g.conditions, uint64(seed))
		out[k][seed], err = evaluation.Play(g.ctx, g.cluster, s, create(s, k), g.rounds, nil, nil)
		return err
	})
}

// volumes writes a row of hypervolumes.
func volumes(b *strings.Builder, name, scenario string, seeds int, fronts [][]point) {
	everyone := make([]int, seeds)
	for i := range everyone {
		everyone[i] = i
	}
	worst, best := []float64{1e9, 1e9, 1e9}, []float64{-1e9, -1e9, -1e9}
	for _, front := range fronts {
		for _, p := range front {
			for o, v := range p.mean(everyone) {
				worst[o], best[o] = min(worst[o], v), max(best[o], v)
			}
		}
	}
	box := 1.0
	for o := range worst {
		box *= best[o] - worst[o]
	}
	volume := func(front []point, pick []int) float64 {
		var points [][]float64
		for _, p := range front {
			points = append(points, p.mean(pick))
		}
		return hypervolume(points, worst) / box
	}
	fmt.Fprintf(b, "| %s | %s |", name, scenario)
	for _, front := range fronts {
		fmt.Fprintf(b, " %.4f |", volume(front, everyone))
	}
	gain := stats.Seeds(seeds, func(pick []int) float64 {
		other := 0.0
		for _, front := range fronts[1:] {
			other = max(other, volume(front, pick))
		}
		return volume(fronts[0], pick) - other
	})
	fmt.Fprintf(b, " %+.4f | %+.4f…%+.4f |\n", gain.Mean, gain.Low, gain.High)
}

// monotone writes a row of what each objective reaches as its weight rises.
func (g *game) monotone(b *strings.Builder, name, scenario string, trained *agent.Trained) error {
	shares := []float64{0.2, 0.5, 1}
	everyone := make([]int, g.seeds)
	for i := range everyone {
		everyone[i] = i
	}
	fmt.Fprintf(b, "| %s | %s |", name, scenario)
	for o := range 3 {
		points, err := g.play(family{"ddqn", len(shares), func(c *cluster.Cluster, _ *sim.Simulator, k int) agent.Policy {
			var w [env.Objectives]float64
			for i := range 3 {
				w[i] = (1 - shares[k]) / 2
			}
			w[o] = shares[k]
			return trained.NewAgent(c, w)
		}})
		if err != nil {
			return err
		}
		fmt.Fprintf(b, " %.4f, %.4f, %.4f |", points[0].mean(everyone)[o], points[1].mean(everyone)[o], points[2].mean(everyone)[o])
	}
	b.WriteString("\n")
	return nil
}
