package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/agent/training"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/internal/stats"
)

// judge compares the greedy play of networks of both kinds, by training seed, under the presets.
type judge struct {
	clusters       []*cluster.Cluster
	deployed       *agent.Trained
	plain, summary []*network
	seeds, rounds  int
}

// newJudge draws clusters from a seed.
func newJudge(seed uint64, drawn int) (*judge, error) {
	sampler, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return nil, err
	}
	j := &judge{}
	rng := rand.New(rand.NewPCG(seed, 4))
	for range drawn {
		c, err := drawCluster(sampler, rng)
		if err != nil {
			return nil, err
		}
		j.clusters = append(j.clusters, c)
	}
	j.deployed, err = agent.Embedded()
	return j, err
}

// heldOut adds the held-out cluster of the same size.
func (j *judge) heldOut() error {
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	j.clusters = append(j.clusters, c)
	return err
}

// goodput plays a run.
func (j *judge) goodput(ctx context.Context, c *cluster.Cluster, conditions cluster.Conditions, seed uint64, create func(s *sim.Simulator) agent.Policy) (float64, error) {
	s := sim.New(c, conditions, seed)
	score, err := evaluation.Play(ctx, c, s, create(s), j.rounds, nil, nil)
	return score.Goodput, err
}

// progress is a network's, in the mean over presets, clusters and seeds.
func (j *judge) progress(ctx context.Context, n *network) (float64, error) {
	var all []float64
	for _, name := range presets {
		conditions, err := cluster.Preset(name)
		if err != nil {
			return 0, err
		}
		for _, c := range j.clusters {
			for seed := range uint64(j.seeds) {
				oracle, err := j.goodput(ctx, c, conditions, seed, func(s *sim.Simulator) agent.Policy { return baseline.NewOracle(c, s, baseline.Oracle{}) })
				if err != nil {
					return 0, err
				}
				own, err := j.goodput(ctx, c, conditions, seed, func(*sim.Simulator) agent.Policy { return newPolicy(c, n) })
				if err != nil {
					return 0, err
				}
				all = append(all, own/oracle)
			}
		}
	}
	return mean(all), nil
}

// outcome is progress under a seed: goodput over the state oracle's.
type outcome struct {
	model, deployed float64
	plain, summary  []float64 // by training seed
}

func (j *judge) play(ctx context.Context, c *cluster.Cluster, conditions cluster.Conditions, seed uint64) (o outcome, err error) {
	run := func(create func(s *sim.Simulator) agent.Policy) float64 {
		goodput, failed := j.goodput(ctx, c, conditions, seed, create)
		err = errors.Join(err, failed)
		return goodput
	}
	oracle := run(func(s *sim.Simulator) agent.Policy { return baseline.NewOracle(c, s, baseline.Oracle{}) })
	with := func(n *network) float64 {
		return run(func(*sim.Simulator) agent.Policy { return newPolicy(c, n) }) / oracle
	}
	o.model = with(nil)
	o.deployed = run(func(*sim.Simulator) agent.Policy { return j.deployed.NewAgent(c, [env.Objectives]float64{1}) }) / oracle
	for k := range j.plain {
		o.plain, o.summary = append(o.plain, with(j.plain[k])), append(o.summary, with(j.summary[k]))
	}
	return o, err
}

// row judges under a preset and writes a row of the table.
func (j *judge) row(ctx context.Context, w io.Writer, name string) error {
	conditions, err := cluster.Preset(name)
	if err != nil {
		return err
	}
	const columns = 5 // model, deployed, row alone, with summary, difference
	strata := make([][][]float64, columns)
	byTraining := make([]float64, len(j.plain))
	for at, c := range j.clusters {
		outcomes, failed := make([]outcome, j.seeds), make([]error, j.seeds)
		var group sync.WaitGroup
		slots := make(chan struct{}, 2)
		for seed := range j.seeds {
			group.Go(func() {
				slots <- struct{}{}
				outcomes[seed], failed[seed] = j.play(ctx, c, conditions, uint64(1000+seed))
				<-slots
			})
		}
		group.Wait()
		if err := errors.Join(failed...); err != nil {
			return fmt.Errorf("%s, cluster %d: %w", name, at, err)
		}
		values := make([][]float64, columns)
		for _, o := range outcomes {
			for k, v := range []float64{o.model, o.deployed, mean(o.plain), mean(o.summary), mean(o.summary) - mean(o.plain)} {
				values[k] = append(values[k], v)
			}
			for k := range byTraining {
				byTraining[k] += (o.summary[k] - o.plain[k]) / float64(j.seeds*len(j.clusters))
			}
		}
		for k := range strata {
			strata[k] = append(strata[k], values[k])
		}
	}
	fmt.Fprintf(w, "| %s |", name)
	for k := range columns - 1 {
		fmt.Fprintf(w, " %.4f |", stats.Bootstrap(strata[k]).Mean)
	}
	d := stats.Bootstrap(strata[columns-1])
	held := stats.Bootstrap(strata[columns-1][len(j.clusters)-1:])
	fmt.Fprintf(w, " %+.4f (%+.4f to %+.4f) |", d.Mean, d.Low, d.High)
	for k, v := range byTraining {
		fmt.Fprintf(w, "%s %+.4f", [...]string{"", ","}[min(k, 1)], v)
	}
	fmt.Fprintf(w, " | %+.4f (%+.4f to %+.4f) |\n", held.Mean, held.Low, held.High)
	return nil
}

// pace is what a network takes to value the actions of one decision.
func (j *judge) pace(ctx context.Context, n *network, rounds int) (time.Duration, error) {
	conditions, err := cluster.Preset(presets[0])
	if err != nil {
		return 0, err
	}
	p := newPolicy(j.clusters[0], n)
	p.clock = time.Now
	s := sim.New(j.clusters[0], conditions, 1)
	_, err = evaluation.Play(ctx, j.clusters[0], s, p, rounds, nil, nil)
	return p.spent / time.Duration(max(rounds-1, 1)), err
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
