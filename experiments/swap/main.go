// Command swap measures what becomes of a job whose two nodes, without profiles, exchange their speeds: whether it is left with
// the old split, and how it stands beside proportional control. It writes its table into experiments/RESULTS.md.
//
//	go run ./experiments/swap
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

const (
	batch    = 100
	swap     = 60  // round of the exchange
	rounds   = 360 // of a run
	settled  = 40  // rounds after it from which nobody may be left behind
	window   = 100 // rounds
	overhead = 0.1 // seconds
	fast     = 0.01
	slow     = 0.04               // seconds a sample
	best     = overhead + fast*80 // seconds of the best split's rounds, without noise
	stuck    = 0.6                // of the best split
	behind   = 0.02               // what is allowed under proportional control
)

var kinds = []string{"noise 3%", "heavy tails", "additive"}

func main() {
	seeds := flag.Int("seeds", 100, "seeds of a cell")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return measure(ctx, *seeds, *out) })
}

func measure(ctx context.Context, seeds int, out string) error {
	begun := time.Now()
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	policies := []struct {
		name   string
		create func(c *cluster.Cluster) agent.Policy
	}{
		{"ddqn", func(c *cluster.Cluster) agent.Policy { return trained.NewAgent(c, [env.Objectives]float64{1}) }},
		{"model", func(c *cluster.Cluster) agent.Policy { return agent.NewModel(c) }},
	}
	var b strings.Builder
	for _, kind := range kinds {
		for _, lag := range []int{0, 1, 4} {
			reference := make([][]float64, seeds)
			for seed := range reference {
				if reference[seed], err = run(ctx, kind, uint64(seed), lag, func(c *cluster.Cluster) agent.Policy { return baseline.NewProportional(c, 1, 0) }); err != nil {
					return err
				}
			}
			row(&b, kind, lag, "proportional", reference, reference)
			for _, p := range policies {
				waits := make([][]float64, seeds)
				for seed := range waits {
					if waits[seed], err = run(ctx, kind, uint64(seed), lag, p.create); err != nil {
						return err
					}
				}
				row(&b, kind, lag, p.name, waits, reference)
			}
		}
	}
	head := fmt.Sprintf("Made by\n\n    go run ./experiments/swap\n\nin %v: %d seeds of %d rounds, a global batch of %d. Two nodes without profiles take %g s and %g or %g s a sample; in round %d they exchange that. Noise: 3%% of a time; besides, in a tenth of the rounds, 30%% more in the mean (heavy tails);\nor 0.1 s more in the mean (additive). Reports come so many rounds late. Stuck: seeds below %g of the best split's speed without noise, in the mean of all rounds from %d after the exchange on. Against proportional control, every round and without a dead band, on the same noise: the worst of any %d rounds in a row, in the median of the seeds and in the worst, and the seeds in which it is\nmore than %g%% behind.\n\n| noise | late | policy | stuck | of the best split | worst seed | worst %d rounds: median | worst seed | seeds more than %g%% behind |\n|---|---|---|---|---|---|---|---|---|\n",
		time.Since(begun).Round(time.Second), seeds, rounds, batch, overhead, fast, slow, swap, stuck, settled, window, 100*behind, window, 100*behind)
	fmt.Print(head + b.String())
	return results.Replace(out, "swap", head+b.String())
}

// row writes what a policy's rounds took, by seed, beside the reference's.
func row(b *strings.Builder, kind string, lag int, name string, waits, reference [][]float64) {
	left, mean, worst, least := 0, 0.0, math.Inf(1), make([]float64, len(waits))
	under := 0
	for seed, w := range waits {
		v := best * float64(rounds-swap-settled) / sum(w[swap+settled:])
		mean += v / float64(len(waits))
		worst = min(worst, v)
		if v < stuck {
			left++
		}
		least[seed] = math.Inf(1)
		for at := range rounds - window + 1 {
			least[seed] = min(least[seed], sum(reference[seed][at:at+window])/sum(w[at:at+window]))
		}
		if least[seed] < 1-behind {
			under++
		}
	}
	slices.Sort(least)
	fmt.Fprintf(b, "| %s | %d | %s | %d | %.3f | %.3f | %.3f | %.3f | %d |\n", kind, lag, name, left, mean, worst, least[len(least)/2], least[0], under)
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// run is what every round of a job takes, in seconds.
func run(ctx context.Context, kind string, seed uint64, lag int, create func(c *cluster.Cluster) agent.Policy) ([]float64, error) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: batch, Nodes: []cluster.Node{{Name: "a", Limit: profile.NoLimit}, {Name: "b", Limit: profile.NoLimit}}}
	job := &job{rng: rand.New(rand.NewPCG(seed, 9)), kind: kind}
	ctl := agent.Control{Cluster: c, Runner: job, Policy: &late{Policy: create(c), by: lag}}
	for range rounds {
		if _, err := ctl.Round(ctx); err != nil {
			return nil, err
		}
	}
	return job.waits, nil
}

// job is the two nodes.
type job struct {
	rng   *rand.Rand
	kind  string
	waits []float64
}

// Present implements cluster.Runner.
func (*job) Present() []bool { return []bool{true, true} }

// Round implements cluster.Runner.
func (j *job) Round(_ context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r := &cluster.Report{Round: len(j.waits), Nodes: make([]cluster.NodeReport, 2)}
	speeds := [2]float64{fast, slow}
	if len(j.waits) >= swap {
		speeds = [2]float64{slow, fast}
	}
	wait := 0.0
	for i, b := range plan.Sizes {
		spike, more, noise := j.rng.Float64() < 0.1, j.rng.ExpFloat64(), j.rng.NormFloat64() // whether used or not: policies meet the same
		if b == 0 {
			continue
		}
		t := overhead + speeds[i]*float64(b)
		switch {
		case j.kind == "additive":
			t += 0.1 * more
		case j.kind == "heavy tails" && spike:
			t *= 1 + 0.3*more
		}
		t *= 1 + 0.03*noise
		r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Seconds: t, Age: t}
		r.Accepted += b
		wait = max(wait, t)
	}
	for i := range r.Nodes {
		r.Nodes[i].Idle = wait - r.Nodes[i].Seconds
	}
	r.Wait, r.Counted = time.Duration(wait*1e9), float64(r.Accepted)
	j.waits = append(j.waits, wait)
	return r, nil
}

// late hands a policy every report so many rounds after its round; sizes stay until the first one.
type late struct {
	agent.Policy
	by   int
	held []*cluster.Report
}

// Decide implements agent.Policy.
func (l *late) Decide(r *cluster.Report, present []bool, plan *cluster.Plan) error {
	if r != nil {
		l.held = append(l.held, r)
		if len(l.held) <= l.by {
			return nil
		}
		r, l.held = l.held[0], l.held[1:]
	}
	return l.Policy.Decide(r, present, plan)
}
