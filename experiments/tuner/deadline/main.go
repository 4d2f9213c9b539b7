// Command deadline shows where rounds that end at a deadline lose against a policy that knows the noise of the round
// beforehand, on clusters of the training split. It prints a table of docs/results/tuner.md.
//
//	go run ./experiments/tuner/deadline
package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/experiments/internal/fleet"
	"evenkeel/experiments/internal/program"
	"evenkeel/internal/parallel"
	"evenkeel/lab/training"
)

const rounds = 200 // of a run

func duration(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }

// draw returns clusters of the training split, of 4 to 64 nodes whose profiles are known.
func draw(count int) ([]*cluster.Cluster, error) {
	sampler, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(7, 7))
	var all []*cluster.Cluster
	for len(all) < count {
		e, err := sampler.Episode(rng, rounds)
		if err != nil {
			return nil, err
		}
		c := e.Cluster
		unknown := func(n cluster.Node) bool { return n.Profile == nil }
		if n := len(c.Nodes); n < 4 || n > 64 || slices.ContainsFunc(c.Nodes, unknown) {
			continue
		}
		all = append(all, c)
		c.Choices, c.Collect = cluster.Choices{}, cluster.Collect{}
		if err := fleet.InMicroSteps(c, len(all)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// policy makes what is judged for one run.
type policy func(c *cluster.Cluster, s *sim.Simulator) agent.Policy

// play returns a run's goodput, and how much later than the deadline its rounds end in the mean.
func play(ctx context.Context, c *cluster.Cluster, conditions cluster.Conditions, seed uint64, p policy) (goodput, late float64, err error) {
	s := sim.New(c, conditions, seed)
	control, seconds, samples := agent.Control{Cluster: c, Runner: s, Policy: p(c, s)}, 0.0, 0.0
	for range rounds {
		r, err := control.Round(ctx)
		if err != nil {
			return 0, 0, err
		}
		seconds += r.Report.Wait.Seconds()
		samples += float64(r.Report.Accepted)
		if d := r.Plan.Collect.Deadline; d > 0 {
			late += (r.Report.Wait.Seconds()/d.Seconds() - 1) / rounds
		}
	}
	return samples / seconds, late, nil
}

// outcome is what the runs of a policy came to.
type outcome struct {
	share [][]float64 // of hindsight, by cluster and seed
	late  float64
}

// compare plays policies on clusters; the first must be hindsight.
func compare(ctx context.Context, cs []*cluster.Cluster, conditions cluster.Conditions, seeds int, policies []policy) ([]outcome, error) {
	runs := len(cs) * seeds
	goodput, late := make([]float64, len(policies)*runs), make([]float64, len(policies)*runs)
	err := parallel.Each(len(goodput), func(t int) (err error) {
		goodput[t], late[t], err = play(ctx, cs[t%runs/seeds], conditions, uint64(t%seeds), policies[t/runs])
		return err
	})
	out := make([]outcome, len(policies))
	for t, g := range goodput {
		o := &out[t/runs]
		o.late += late[t] / float64(runs)
		if t%seeds == 0 {
			o.share = append(o.share, nil)
		}
		last := len(o.share) - 1
		o.share[last] = append(o.share[last], g/goodput[t%runs])
	}
	return out, err
}

func hindsight(c *cluster.Cluster, s *sim.Simulator) agent.Policy {
	return waiting{baseline.NewOracle(c, s, baseline.Oracle{Noise: true})}
}

// waiting has a policy wait for the shares.
type waiting struct{ agent.Policy }

func (w waiting) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect.AutoDeadline, plan.Collect.Overtime = false, 0
	return w.Policy.Decide(report, present, plan)
}

// Omniscient marks an oracle for agent.Control.
func (waiting) Omniscient() {}

func main() {
	seeds := flag.Int("seeds", 2, "seeds to judge on")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return parts(ctx, *seeds) })
}
