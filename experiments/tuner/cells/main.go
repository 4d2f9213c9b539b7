// Command cells judges policies on clusters and conditions drawn at random from what training covers, by seeds that training
// never draws. Held-out devices have no part in it, so policies may be chosen by it. It shows how often
// the network costs something.
//
//	go run ./experiments/tuner/cells
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/experiments/internal/program"
	"evenkeel/internal/stats"
	"evenkeel/lab/evaluation"
	"evenkeel/lab/training"
)

// options are the flags.
type options struct {
	cells, seeds, rounds int
	rule                 string
}

func main() {
	var o options
	flag.IntVar(&o.cells, "cells", 100, "cells to draw for each way to end rounds")
	flag.IntVar(&o.seeds, "seeds", 10, "seeds per cell")
	flag.IntVar(&o.rounds, "rounds", 300, "rounds per run")
	flag.StringVar(&o.rule, "rule", "all,free", "how rounds end")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	begun := time.Now()
	embedded, err := agent.Embedded()
	if err != nil {
		return err
	}
	policies, err := evaluation.Find([]string{"model", "ddqn"})
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, rule := range strings.Split(o.rule, ",") {
		cells, err := draw(o, rule)
		if err != nil {
			return err
		}
		for k, c := range cells {
			lines, err := evaluation.Compare(ctx, evaluation.Config{
				Cases: []evaluation.Case{c.of}, Scenarios: []evaluation.Scenario{c.under}, Policies: policies, Trained: embedded,
				Seeds: o.seeds, Rounds: o.rounds,
			})
			if err != nil {
				return err
			}
			for k := range lines {
				c.progress = append(c.progress, lines[k].Ratios())
			}
			if (k+1)%10 == 0 {
				fmt.Fprintf(os.Stderr, "%v: rule %s, %d of %d cells\n", time.Since(begun).Round(time.Second), rule, k+1, len(cells))
			}
		}
		table(&b, rule, policies, cells)
	}
	fmt.Print(b.String())
	return nil
}

// cell is a cluster under conditions, what is particular about it, and what policies made of it.
type cell struct {
	of    evaluation.Case
	under evaluation.Scenario
	kinds []string
	// progress of each policy, by seed
	progress [][]float64
}

// draw draws cells, the same for the same flags.
func draw(o options, rule string) ([]*cell, error) {
	sampler, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return nil, err
	}
	// A stream of its own: training draws from the streams 1 to 5 of its seed.
	rng := rand.New(rand.NewPCG(1, 1<<32))
	var cells []*cell
	for len(cells) < o.cells {
		e, err := sampler.Episode(rng, o.rounds)
		if err != nil {
			return nil, err
		}
		c := e.Cluster
		if len(c.Nodes) > 128 {
			continue // larger clusters take too long
		}
		c.Collect, c.Choices = cluster.Collect{}, cluster.Choices{}
		if rule == "free" {
			c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
		}
		conditions := e.Conditions
		if conditions.Failures.Rate > 0 && len(c.Nodes) < 8 {
			conditions.Failures = cluster.Failures{} // too few left to hold the batch
		}
		cells = append(cells, &cell{
			of:    evaluation.Case{Name: fmt.Sprint(len(cells)), Cluster: c, Weights: [env.Objectives]float64{1}},
			under: evaluation.Scenario{Name: "drawn", Conditions: conditions}, kinds: kinds(c, &conditions),
		})
	}
	return cells, nil
}

// kinds names the groups that a cell counts in.
func kinds(c *cluster.Cluster, d *cluster.Conditions) []string {
	kinds := []string{"all"}
	add := func(is bool, kind string) {
		if is {
			kinds = append(kinds, kind)
		}
	}
	sizes, overhead, hidden, shapes := make([]int, len(c.Nodes)), 0.0, false, false
	known := c.Revealed()
	nominal := known.Nominal()
	finish, err := cluster.Allocate(known, nil, nominal, sizes)
	for i := range c.Nodes {
		overhead += known.Nodes[i].Finish(nominal[i], known.Nodes[i].LeastShare()) / float64(len(c.Nodes)) // of the smallest share
		hidden = hidden || c.Nodes[i].Profile == nil
		shapes = shapes || c.Nodes[i].Profile != nil && c.Nodes[i].Hidden.Profile != nil
	}
	add(len(c.Nodes) <= 4, "2 to 4 nodes")
	add(len(c.Nodes) >= 16, "16 nodes and more")
	add(err == nil && overhead > 0.4*finish, "overhead above 40%")
	add(hidden, "no profiles")
	add(shapes && !hidden, "wrong shapes")
	add(d.Noise.Median >= 0.15, "noise of 15% and more")
	add(d.Drift.SD > 0, "drift")
	add(len(d.Episodes) > 0 && d.Episodes[0].Rate > 0 && d.Episodes[0].Rounds >= 30, "long interference")
	add(len(d.Episodes) > 0 && d.Episodes[0].Rounds < 30, "bursts")
	add(d.Failures.Rate > 0, "failures")
	add(finish < 1, "rounds under 1 s")
	return kinds
}

const below = 0.002 // of progress: what counts as a loss

// table writes, by group, how the policies compare with the fallback, which is the first.
func table(b *strings.Builder, rule string, policies []evaluation.Spec, cells []*cell) {
	fmt.Fprintf(b, "\n### rule: %s\n\n| cells | count | policy | progress | gain over the fallback | 95%% | cells below -0.2 points | below beyond their interval |\n|---|---|---|---|---|---|---|---|\n", rule)
	var groups []string
	count := map[string][]*cell{}
	for _, c := range cells {
		for _, k := range c.kinds {
			if count[k] == nil {
				groups = append(groups, k)
			}
			count[k] = append(count[k], c)
		}
	}
	for _, g := range groups {
		for p := range policies {
			var gains []float64
			less, sure, progress := 0, 0, 0.0
			for _, c := range count[g] {
				var differences []float64
				for s, v := range c.progress[p] {
					differences = append(differences, v-c.progress[0][s])
				}
				d := stats.Bootstrap([][]float64{differences})
				gains = append(gains, d.Mean)
				progress += stats.Bootstrap([][]float64{c.progress[p]}).Mean / float64(len(count[g]))
				if d.Mean < -below {
					less++
				}
				if d.High < 0 {
					sure++
				}
			}
			i := stats.Bootstrap([][]float64{gains})
			fmt.Fprintf(b, "| %s | %d | %s | %.4f | %+.4f | %+.4f…%+.4f | %d | %d |\n", g, len(count[g]), policies[p].Name, progress, i.Mean, i.Low, i.High, less, sure)
		}
	}
}
