package agent

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// untrained is a policy of random weights that takes every input for known.
func untrained(t testing.TB, hidden ...int) *Trained {
	t.Helper()
	network := func(features, actions int) *ddqn.Network {
		net, err := ddqn.NewNetwork(ddqn.Spec{Features: features, Actions: actions, Objectives: env.Objectives, Hidden: hidden}, rand.New(rand.NewPCG(3, 3)))
		if err != nil {
			t.Fatal(err)
		}
		return net
	}
	wide := func(features int, v float32) []float32 { return slices.Repeat([]float32{v}, features) }
	return &Trained{
		Network: network(env.Features, len(env.Actions)), Round: network(env.RoundFeatures, len(cluster.Rules)),
		Record: Record{
			Version: recordVersion, Low: wide(env.Features, -100), High: wide(env.Features, 100),
			RoundLow: wide(env.RoundFeatures, -100), RoundHigh: wide(env.RoundFeatures, 100),
		},
	}
}

// embeddedPolicy is the policy that comes with the program.
func embeddedPolicy(t testing.TB) *Trained {
	t.Helper()
	trained, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return trained
}
