// Command modelfree trains baseline 7, reinforcement learning without a model
// (baseline.ModelFree, as DYNAMIX of 2025, known here from summaries), and judges it on
// clusters of the training split.
//
//	go run ./experiments/tuner/modelfree                     # trains, writes policy.safetensors
//	go run ./experiments/tuner/modelfree -judge              # only judges the file that is there
//	go run ./experiments/tuner/modelfree -reward team -out /tmp/team.safetensors
//
// It gets what the project's own policy gets: the scenarios, 1.5 million rounds in 128
// environments, 12 updates each, the learner, the width, seed 1. Its reward uses only what
// such an agent can measure, nothing of the simulator's truth. Progress over the
// three clusters (goodput over the state oracle's, 10 seeds, waterfill tuned; 2m48s of
// training on two cores), printed by the first command:
//
//	             steady  drift   interference  bursts
//	modelfree    0.9514  0.9505  0.9268        0.6686
//	uniform      0.3919  0.3870  0.2891        0.2282
//	nameplate    0.6868  0.6806  0.4574        0.3618
//	waterfill    0.9968  0.9921  0.9625        0.7482
//
// The reward was chosen on the same clusters, with -steps 100000 -seeds 4:
//
//	own reward, weight of the team's, training seed  steady  drift   interference  bursts
//	time against the fleet's mean (even), 1, 1       0.9687  0.9683  0.9411        0.6488
//	the same, seed 2                                 0.9543  0.9523  0.9266        0.6317
//	the same, seed 3                                 0.9596  0.9543  0.9242        0.6154
//	the same, 0.1, 1                                 0.9527  0.9496  0.9217        0.6409
//	the same, 3, 1                                   0.9614  0.9595  0.9336        0.6455
//	idle share and lateness (idle), 0.1, 1           0.9608  0.9590  0.9143        0.5937
//	none (team), 1, 1                                0.9313  0.9282  0.8808        0.5425
//
// Training seeds differ by as much as the better rewards do. The full budget gains in
// bursts only: 100,000 rounds of seed 1 reach 0.9683, 0.9683, 0.9395 and 0.6559 on the
// 10 seeds above, more than the full run except in bursts, and those of seed 2 0.9537, 0.9535,
// 0.9247 and 0.6411. The full run counts: it was not repeated.
// Also tried, once each and on average no better than seed 1: the square of the log time
// as reward, discounts of 0.8 and 0.9, three-step returns. Keeping a share unless the
// advantage of a change was above a threshold hardly mattered.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/lab/evaluation"
	"github.com/evenkeel/evenkeel/lab/training"
)

// sites are clusters of the training split.
var sites = []string{
	"workload: bert-base-512-fp32\nglobal_batch: 160\nnodes: [{device: a10g, count: 3}, {device: v100-16g, count: 2}, {device: t4, count: 3}]",
	"workload: llama-3b-512-fp16\nglobal_batch: 640\nnodes: [{device: a100-40g, count: 4}, {device: a10g, count: 12}, {device: a6000, count: 8}, {device: t4, count: 8}]",
}

func main() {
	c := defaults()
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the training run")
	flag.IntVar(&c.Steps, "steps", c.Steps, "rounds over all environments")
	flag.Float64Var(&c.Gamma, "gamma", c.Gamma, "discount per round")
	flag.StringVar(&c.Reward, "reward", c.Reward, "even, idle or team")
	flag.Float64Var(&c.Team, "team", c.Team, "weight of the team's reward")
	out := flag.String("out", "experiments/tuner/modelfree/policy.safetensors", "policy file")
	judge := flag.Bool("judge", false, "do not train")
	seeds := flag.Int("seeds", 10, "seeds to judge on")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		if !*judge {
			if err := write(ctx, c, *out); err != nil {
				return err
			}
		}
		return show(ctx, *out, *seeds)
	})
}

// write trains and writes the policy file.
func write(ctx context.Context, c config, out string) error {
	scenarios, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return err
	}
	begun := time.Now()
	net, err := train(ctx, c, scenarios.Episode, func(done, total int) {
		if done%max(total/10, 1) == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d sets, %v\n", done, total, time.Since(begun).Round(time.Second))
		}
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return ddqn.Save(out, map[string]*ddqn.Network{networkName: net}, map[string]string{"evenkeel.modelfree": string(text)})
}

// networkName is the network's name in the policy file.
const networkName = "nodes"

// show prints progress (goodput over the state oracle's) beside that of three baselines.
func show(ctx context.Context, file string, seeds int) error {
	nets, _, err := ddqn.Load(file)
	if err != nil {
		return err
	}
	own, err := evaluation.ModelFree(nets[networkName])
	if err != nil {
		return err
	}
	others, err := evaluation.Find([]string{"uniform", "nameplate", "waterfill"})
	if err != nil {
		return err
	}
	config := evaluation.Config{Policies: append([]evaluation.Spec{own}, others...), Seeds: seeds, Rounds: 400}
	example, err := clusters.YAML(clusters.Example)
	if err != nil {
		return err
	}
	for k, text := range append([]string{string(example)}, sites...) {
		_, c, err := clusterfile.Read(strings.NewReader(text), fmt.Sprintf("site %d", k), profile.Embedded())
		if err != nil {
			return err
		}
		config.Cases = append(config.Cases, evaluation.Case{Name: fmt.Sprintf("%s, %d nodes", c.Workload, len(c.Nodes)), Cluster: c, Weights: [env.Objectives]float64{1}})
	}
	for _, name := range []string{"steady", "drift", "interference", "bursts"} {
		conditions, err := cluster.Preset(name)
		if err != nil {
			return err
		}
		config.Scenarios = append(config.Scenarios, evaluation.Scenario{Name: name, Conditions: conditions})
	}
	lines, err := evaluation.Compare(ctx, config)
	for _, r := range lines {
		fmt.Printf("%-30s %-12s  %-9s  %.4f (%.4f to %.4f)  idle %.1f%%\n", r.Cluster, r.Scenario, r.Policy, r.Progress, r.Low, r.High, 100*r.Waiting)
	}
	return err
}
