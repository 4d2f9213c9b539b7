package learn

import (
	"math/rand/v2"
	"testing"

	"evenkeel/ddqn"
)

// BenchmarkUpdate is an update of a network of the size of Evenkeel's own.
func BenchmarkUpdate(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	spec := ddqn.Spec{Features: 32, Actions: 24, Objectives: 3, Hidden: []int{64, 64}}
	net, err := ddqn.NewNetwork(spec, rng)
	if err != nil {
		b.Fatal(err)
	}
	learner, err := NewLearner(Config{}, net, rand.NewPCG(3, 4))
	if err != nil {
		b.Fatal(err)
	}
	replay := randomReplay(b, ReplayConfig{Streams: 16, Capacity: 1000, Group: 8, Features: 32, Objectives: 3}, 24, 1000, rng)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := learner.Update(replay); err != nil {
			b.Fatal(err)
		}
	}
}
