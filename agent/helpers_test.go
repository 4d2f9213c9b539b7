package agent

import (
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/ddqn"
	"evenkeel/env"
)

// untrained is a policy of random weights that takes every input for known.
func untrained(t testing.TB, hidden ...int) *Trained {
	t.Helper()
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: env.Features, Actions: len(env.Actions), Objectives: env.Objectives, Hidden: hidden}, rand.New(rand.NewPCG(3, 3)))
	if err != nil {
		t.Fatal(err)
	}
	wide := func(v float32) []float32 { return slices.Repeat([]float32{v}, env.Features) }
	return &Trained{
		Network: net,
		Record:  Record{Version: recordVersion, Low: wide(-100), High: wide(100)},
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
