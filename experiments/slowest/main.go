// Command slowest measures what one bad node costs a job and how much of that is taken away
// again: one of equals at half speed, one 50 times slower, one that says nothing, one whose
// memory holds less than the cluster file says. It writes them into experiments/RESULTS.md.
//
//	go run ./experiments/slowest
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

func main() {
	seeds := flag.Int("seeds", 10, "seeds of a cell")
	rounds := flag.Int("rounds", 400, "rounds of a run")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return measure(ctx, *seeds, *rounds, *out) })
}

const (
	ranks   = 16
	batch   = 512
	perNode = batch / ranks
	timeout = 30 * time.Second // of a node that says nothing
)

// kinds of rounds that are tried.
var kinds = []struct {
	name  string
	steps int // micro-steps of a healthy node's share
	timed bool
	free  bool    // quorum and grace
	out   float64 // time-out, over the deadline; 0: in seconds
}{
	{"one micro-step", 1, false, false, 0}, {"8 micro-steps", 8, false, false, 0}, {"8 micro-steps until a deadline", 8, true, false, 0},
	{"the same, a time-out of three deadlines", 8, true, false, 3}, {"one micro-step, quorum and grace free", 1, false, true, 0},
}

// job is equal ranks whose healthy round takes so many seconds, a tenth of it whatever the
// share; of the last one, bad may change anything.
func job(nodes int, seconds float64, steps int, timed, free bool, bad func(*cluster.Node)) (*cluster.Cluster, error) {
	full := perNode / steps
	points := []profile.Point{
		{MicroBatch: 1, Seconds: seconds / float64(steps) * (0.1 + 0.9/float64(full))}, {MicroBatch: full, Seconds: seconds / float64(steps)},
		{MicroBatch: 2 * full, Seconds: seconds / float64(steps) * 1.9},
	}
	if full == 1 {
		points = points[1:]
	}
	p, err := profile.New("rank", "job", points, "experiments/slowest")
	if err != nil {
		return nil, err
	}
	c := &cluster.Cluster{Workload: "job", GlobalBatch: batch}
	c.Collect.AutoDeadline = timed
	if free {
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	}
	if timed {
		c.Collect.Reserve = cluster.DefaultReserve
	}
	for i := range nodes {
		n := cluster.Node{Name: fmt.Sprintf("rank-%d", i), Device: "rank", Profile: p, Limit: full}
		if steps == 1 {
			n.Limit = 2 * full
		}
		c.Nodes = append(c.Nodes, n)
	}
	if bad != nil {
		bad(&c.Nodes[nodes-1])
	}
	return c, nil
}

// play returns the mean time for a global batch of samples.
func play(ctx context.Context, c *cluster.Cluster, conditions cluster.Conditions, policy func(*cluster.Cluster) agent.Policy, seed uint64, rounds int) (float64, error) {
	c = c.Own()
	ctl := agent.Control{Cluster: c, Runner: sim.New(c, conditions, seed), Policy: policy(c)}
	seconds, samples := 0.0, 0.0
	for range rounds {
		r, err := ctl.Round(ctx)
		if err != nil {
			return 0, err
		}
		seconds += r.Report.Wait.Seconds()
		samples += float64(r.Report.Accepted)
	}
	return seconds / samples * batch, nil
}

// over is the mean over seeds of f, with its 95% interval.
func over(seeds int, f func(seed uint64) (float64, error)) (string, error) {
	sum, squares := 0.0, 0.0
	for seed := range uint64(seeds) {
		v, err := f(seed + 1)
		if err != nil {
			return "", err
		}
		sum += v
		squares += v * v
	}
	n := float64(seeds)
	mean := sum / n
	half := 1.96 * math.Sqrt(max(squares/n-mean*mean, 0)/max(n-1, 1))
	return fmt.Sprintf("%.3f (%.3f to %.3f)", mean, mean-half, mean+half), nil
}

// conditions are none at all, and those with bias, noise and spikes.
func conditions() (map[string]cluster.Conditions, error) {
	steady, err := cluster.Preset("steady")
	steady.Scale = cluster.NoiseScale{}
	return map[string]cluster.Conditions{"quiet": {}, "steady": steady}, err
}

func measure(ctx context.Context, seeds, rounds int, out string) error {
	begun := time.Now()
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	ddqn := func(c *cluster.Cluster) agent.Policy { return trained.NewAgent(c, [env.Objectives]float64{1}) }
	uniform := func(c *cluster.Cluster) agent.Policy { return baseline.NewUniform(c) }
	all, err := conditions()
	if err != nil {
		return err
	}
	var half, lost strings.Builder
	for _, k := range kinds {
		for _, name := range []string{"quiet", "steady"} {
			if k.free || k.out > 0 {
				continue
			}
			cond := all[name]
			text, err := over(seeds, func(seed uint64) (float64, error) {
				slow, err := job(ranks, 1, k.steps, k.timed, false, func(n *cluster.Node) { n.Hidden.Slowdown = 2 })
				if err != nil {
					return 0, err
				}
				waits := slow.Own()
				waits.Collect.AutoDeadline = false
				healthy, err := job(ranks, 1, k.steps, false, false, nil)
				if err != nil {
					return 0, err
				}
				with, err := play(ctx, slow, cond, ddqn, seed, rounds)
				if err != nil {
					return 0, err
				}
				without, err := play(ctx, waits, cond, uniform, seed, rounds)
				if err != nil {
					return 0, err
				}
				whole, err := play(ctx, healthy, cond, uniform, seed, rounds)
				return (without - with) / (without - whole), err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(&half, "| %s | %s | %s |\n", k.name, name, text)
		}
		for _, seconds := range []float64{0.05, 1, 20} {
			row := []string{k.name, fmt.Sprintf("%g s", seconds)}
			for _, bad := range []func(*cluster.Node){
				func(n *cluster.Node) { n.Hidden.Slowdown = 50 },
				func(n *cluster.Node) { n.Hidden.Slowdown = 1e9 },
				func(n *cluster.Node) { n.Hidden.Limit = max(n.Limit*3/4, 1) },
			} {
				text, err := over(seeds, func(seed uint64) (float64, error) {
					worse, err := job(ranks, seconds, k.steps, k.timed, k.free, bad)
					if err != nil {
						return 0, err
					}
					if worse.Collect.TimeoutShare = k.out; k.out == 0 {
						worse.Collect.Timeout = max(timeout, time.Duration(100*seconds*1e9))
					}
					few, err := job(ranks-1, seconds, k.steps, k.timed, k.free, nil)
					if err != nil {
						return 0, err
					}
					if worse.Nodes[ranks-1].Hidden.Limit > 0 {
						few = worse.Own()
						n := &few.Nodes[ranks-1]
						n.Limit, n.Hidden.Limit = n.Hidden.Limit, 0
					}
					with, err := play(ctx, worse, all["steady"], ddqn, seed, rounds)
					if err != nil {
						return 0, err
					}
					without, err := play(ctx, few, all["steady"], ddqn, seed, rounds)
					return without / with, err
				})
				if err != nil {
					return err
				}
				row = append(row, text)
			}
			fmt.Fprintf(&lost, "| %s |\n", strings.Join(row, " | "))
			fmt.Fprintf(os.Stderr, "%v: %s, %g s\n", time.Since(begun).Round(time.Second), k.name, seconds)
		}
	}
	text := fmt.Sprintf(`Made by

    go run ./experiments/slowest

in %v: 16 equal ranks and a global batch of 512, a tenth of a round whatever the share, %d seeds, %d rounds from the first on, the embedded policy.

One rank at half speed, by (T slow - T) / (T slow - T healthy), where T slow and T healthy are the times of equal shares that all wait for, with the slow rank and without
one. Work handed out in proportion reaches .968.

| rounds | conditions | taken away |
|---|---|---|
%s
One bad rank in steady conditions: goodput over that of the job without the rank, or, of memory that holds three quarters of what the file says, over that of a file that says so. A
silent rank is noticed by a timeout of 30 s, or 100 rounds where that is more.

| rounds | healthy round | 50 times slower | silent | less memory |
|---|---|---|---|---|
%s`, time.Since(begun).Round(time.Second), seeds, rounds, half.String(), lost.String())
	fmt.Print(text)
	return results.Replace(out, "slowest", text)
}
