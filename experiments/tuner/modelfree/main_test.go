package main

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env/episode"
	"github.com/evenkeel/evenkeel/experiments/internal/modelfree"
	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// Two nodes of different speed start with even shares: a short run must learn to change
// that, and give the same bits twice. Over seeds 0 to 9 it reached 1.52 to 1.56 of
// uniform's goodput.
func TestLearnsTwoNodes(t *testing.T) {
	_, c, err := cluster.Read(strings.NewReader("workload: llama-3b-512-fp16\nglobal_batch: 48\nnodes: [{device: a10g}, {device: t4}]"), "two", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Nodes {
		c.Nodes[i].TFLOPS = 0
	}
	conditions, err := cluster.Preset("steady")
	if err != nil {
		t.Fatal(err)
	}
	config := config{Seed: 1, Steps: 6000, Envs: 16, Updates: 2, Gamma: 0.5, Hidden: []int{16}}
	learn := func() *ddqn.Network {
		net, err := train(context.Background(), config, func(rng *rand.Rand, rounds int) (episode.Config, error) {
			return episode.Config{Cluster: c, Conditions: conditions, Seed: rng.Uint64(), Rounds: rounds}, nil
		}, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		return net
	}
	goodput := func(p agent.Policy) float64 {
		score, err := evaluation.Play(context.Background(), c, sim.New(c, conditions, 99), p, 200, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return score.Goodput
	}
	rows := make([]float32, 4*width)
	for i := range rows {
		rows[i] = float32(i%7) / 7
	}
	net := learn()
	if !slices.Equal(ddqn.NewActor(net).Q(nil, rows), ddqn.NewActor(learn()).Q(nil, rows)) {
		t.Error("two runs of one seed gave different networks")
	}
	if got := goodput(modelfree.New(c, net)) / goodput(baseline.NewUniform(c)); got < 1.4 {
		t.Errorf("%.3f of uniform's goodput, want at least 1.4", got)
	}
}

// The policy file is one of the agent's, trained with the defaults.
func TestPolicyFile(t *testing.T) {
	nets, meta, err := ddqn.Load("policy.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := nets[networkName].Spec(), modelfree.Spec([]int{64, 64}); !reflect.DeepEqual(got, want) {
		t.Errorf("a network of %v, want %v", got, want)
	}
	if !strings.Contains(meta["evenkeel.modelfree"], `"seed":1,"steps":1500000,"envs":128,`) {
		t.Errorf("trained with %s", meta["evenkeel.modelfree"])
	}
}
