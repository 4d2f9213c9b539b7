// Command deadline shows where rounds that end at a deadline lose against knowing the noise of
// the round beforehand, and what a learned deadline adds to the rule's. It writes both tables
// into experiments/tuner/RESULTS.md. Clusters are of the training split, but for those on which
// what was learned is judged.
//
//	go run ./experiments/tuner/deadline
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	clock "time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
	"github.com/evenkeel/evenkeel/lab/training"
)

const rounds = 200 // of a run

func time(seconds float64) clock.Duration { return clock.Duration(seconds * 1e9) }

// micro gives a cluster memory for a part of a share only: 4 to 32 micro-steps, by device.
func micro(c *cluster.Cluster, first int) error {
	for i := range c.Nodes {
		c.Nodes[i].Limit = profile.NoLimit
	}
	sizes := make([]int, len(c.Nodes))
	if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil {
		return err
	}
	devices := map[string]int{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if _, known := devices[n.Device]; !known {
			devices[n.Device] = len(devices)
		}
		steps := 4 << ((devices[n.Device] + first) % 4)
		n.Limit = max((sizes[i]+steps-1)/steps, 1)
	}
	c.Choices, c.Collect = cluster.Choices{}, cluster.Collect{AutoDeadline: true, Reserve: cluster.DefaultReserve, Overtime: cluster.DefaultOvertime}
	return nil
}

// source draws clusters and conditions of the training split.
type source struct {
	sampler *training.Sampler
	rng     *rand.Rand
	drawn   int
}

func newClusters(seed uint64) (*source, error) {
	s, err := training.NewSampler(profile.Embedded())
	return &source{sampler: s, rng: rand.New(rand.NewPCG(seed, seed))}, err
}

// episode draws a cluster of 4 to 64 nodes whose profiles are known.
func (s *source) episode() (*cluster.Cluster, cluster.Conditions, error) {
draw:
	for {
		e, err := s.sampler.Episode(s.rng, rounds)
		if err != nil {
			return nil, cluster.Conditions{}, err
		}
		c := e.Cluster
		if n := len(c.Nodes); n < 4 || n > 64 {
			continue
		}
		for i := range c.Nodes {
			if c.Nodes[i].Profile == nil {
				continue draw
			}
		}
		s.drawn++
		e.Conditions.Scale = cluster.NoiseScale{}
		return c, e.Conditions, micro(c, s.drawn)
	}
}

// preset returns named conditions without a noise scale.
func preset(name string) (cluster.Conditions, error) {
	c, err := cluster.Preset(name)
	c.Scale = cluster.NoiseScale{}
	return c, err
}

// policy makes what is judged for one run; the runner is the simulator or a wrapper of it.
type policy func(c *cluster.Cluster, s *sim.Simulator) (agent.Policy, cluster.Runner)

// play returns a run's goodput, mean samples over the global batch, and lateness over the deadline.
func play(ctx context.Context, c *cluster.Cluster, conditions cluster.Conditions, seed uint64, p policy) (goodput, samples, late float64, err error) {
	s := sim.New(c, conditions, seed)
	made, runner := p(c, s)
	control, seconds := agent.Control{Cluster: c, Runner: runner, Policy: made}, 0.0
	for range rounds {
		r, err := control.Round(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		seconds += r.Report.Wait.Seconds()
		samples += float64(r.Report.Accepted)
		if d := r.Plan.Collect.Deadline; d > 0 {
			late += (r.Report.Wait.Seconds()/d.Seconds() - 1) / rounds
		}
	}
	return samples / seconds, samples / float64(c.GlobalBatch) / rounds, late, nil
}

// outcome is what the runs of a policy came to.
type outcome struct {
	share         [][]float64 // of hindsight, by cluster and seed
	samples, late float64
}

// compare plays policies on clusters; the first must be hindsight.
func compare(ctx context.Context, cs []*cluster.Cluster, conditions cluster.Conditions, seeds int, policies []policy) ([]outcome, error) {
	out := make([]outcome, len(policies))
	goodput := make([][][]float64, len(policies))
	for k := range out {
		for range cs {
			goodput[k] = append(goodput[k], make([]float64, seeds))
		}
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	var first error
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	n := float64(len(cs) * seeds)
	for k, p := range policies {
		for i, c := range cs {
			for seed := range seeds {
				wait.Add(1)
				free <- struct{}{}
				go func() {
					defer func() { <-free; wait.Done() }()
					g, samples, late, err := play(ctx, c, conditions, uint64(seed), p)
					mu.Lock()
					defer mu.Unlock()
					if err != nil && first == nil {
						first = err
					}
					goodput[k][i][seed] = g
					out[k].samples += samples / n
					out[k].late += late / n
				}()
			}
		}
	}
	wait.Wait()
	for k := range out {
		for i := range cs {
			var shares []float64
			for seed := range seeds {
				shares = append(shares, goodput[k][i][seed]/goodput[0][i][seed])
			}
			out[k].share = append(out[k].share, shares)
		}
	}
	return out, first
}

func hindsight(c *cluster.Cluster, s *sim.Simulator) (agent.Policy, cluster.Runner) {
	return waiting{baseline.NewOracle(c, s, baseline.Oracle{Noise: true})}, s
}

// waiting has a policy wait for the shares.
type waiting struct{ agent.Policy }

func (w waiting) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect.AutoDeadline, plan.Collect.Overtime = false, 0
	return w.Policy.Decide(report, present, plan)
}

// Omniscient implements agent.Omniscient.
func (waiting) Omniscient() {}

func main() {
	out := flag.String("out", "experiments/tuner/RESULTS.md", "file whose sections deadline-parts and deadline-learned are replaced")
	seeds := flag.Int("seeds", 10, "seeds to judge on")
	steps := flag.Int("rounds", 200_000, "rounds of training")
	flag.Parse()
	command := "go run ./experiments/tuner/deadline"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "out" {
			command += " -" + f.Name + " " + f.Value.String()
		}
	})
	program.Main(func(ctx context.Context) error { return run(ctx, command, *out, *seeds, *steps) })
}

func run(ctx context.Context, command, out string, seeds, steps int) error {
	text, err := parts(ctx, command)
	if err != nil {
		return err
	}
	fmt.Print(text)
	if err := results.Replace(out, "deadline-parts", text); err != nil {
		return err
	}
	begun := clock.Now()
	last := begun
	net, err := train(ctx, steps, func(done int, reward float64) {
		if now := clock.Now(); now.Sub(last) > 5*clock.Second {
			last = now
			fmt.Fprintf(os.Stderr, "%d of %d rounds, gain over the rule %+.4f rounds a round\n", done, steps, reward/10)
		}
	})
	if err != nil {
		return err
	}
	if text, err = learned(ctx, command, net, seeds, steps, clock.Since(begun)); err != nil {
		return err
	}
	fmt.Print(text)
	return results.Replace(out, "deadline-learned", text)
}

// learned judges a network on the held-out clusters.
func learned(ctx context.Context, command string, net *ddqn.Network, seeds, steps int, took clock.Duration) (string, error) {
	var cs []*cluster.Cluster
	for k, name := range clusters.HeldOut {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err == nil {
			err = micro(c, k)
		}
		if err != nil {
			return "", err
		}
		cs = append(cs, c)
	}
	chosen := func(least float64, fixed bool) policy {
		return func(c *cluster.Cluster, s *sim.Simulator) (agent.Policy, cluster.Runner) {
			actor := ddqn.NewActor(net)
			if fixed {
				actor = nil
			}
			p := newChooser(c, actor, 0, least, nil)
			return p, &judge{Simulator: s, chooser: p}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds of training in %v on %d cores, %d seeds of %d rounds on the held-out clusters, by\n\n    %s\n\n", steps, took.Round(clock.Second), runtime.NumCPU(), seeds, rounds, command)
	b.WriteString("| conditions | the rule, of hindsight | learned, of hindsight | gain | learned, from an advantage of .01 | gain | samples: rule, learned |\n|---|---|---|---|---|---|---|\n")
	for _, name := range []string{"steady", "drift", "interference", "bursts", "failures", "production"} {
		conditions, err := preset(name)
		if err != nil {
			return "", err
		}
		o, err := compare(ctx, cs, conditions, seeds, []policy{hindsight, chosen(0, true), chosen(0, false), chosen(0.1, false)})
		if err != nil {
			return "", err
		}
		gain := func(k int) string {
			var d [][]float64
			for i := range o[k].share {
				var row []float64
				for s := range o[k].share[i] {
					row = append(row, o[k].share[i][s]-o[1].share[i][s])
				}
				d = append(d, row)
			}
			g := stats.Bootstrap(d)
			return fmt.Sprintf("%+.4f (%+.4f to %+.4f)", g.Mean, g.Low, g.High)
		}
		mean := func(k int) float64 { return stats.Bootstrap(o[k].share).Mean }
		fmt.Fprintf(&b, "| %s | %.4f | %.4f | %s | %.4f | %s | %.3f, %.3f |\n", name, mean(1), mean(2), gain(2), mean(3), gain(3), o[1].samples, o[2].samples)
	}
	return b.String(), nil
}
