// Command modelfree trains reinforcement learning without a model (package experiments/internal/modelfree), with the
// training clusters, the learner and three times the rounds of Evenkeel's own policy, and writes policy.safetensors,
// which experiments/tuner/heldout judges. Its reward uses only what such an agent can measure, nothing of the simulator's
// truth: a node's time against the fleet's mean, and the team's.
//
//	go run ./experiments/tuner/modelfree
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/lab/training"
)

func main() {
	c := defaults()
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the training run")
	flag.IntVar(&c.Steps, "steps", c.Steps, "rounds over all environments")
	out := flag.String("out", "experiments/tuner/modelfree/policy.safetensors", "policy file")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return write(ctx, c, *out) })
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
