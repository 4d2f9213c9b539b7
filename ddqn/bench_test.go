package ddqn

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchSpec is the size of Evenkeel's own agent.
var benchSpec = Spec{Features: 32, Actions: 24, Objectives: 3, Hidden: []int{64, 64}}

func BenchmarkQ(b *testing.B) {
	for _, n := range []int{1, 32, 1000, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			net, err := NewNetwork(benchSpec, rng)
			if err != nil {
				b.Fatal(err)
			}
			actor := NewActor(net)
			rows := randomFloats(rng, n*benchSpec.Features)
			q := actor.Q(nil, rows)
			b.ReportAllocs()
			for b.Loop() {
				q = actor.Q(q, rows)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkFirstQ is what a program waits for before its first decision, loading apart.
func BenchmarkFirstQ(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	net, err := NewNetwork(benchSpec, rng)
	if err != nil {
		b.Fatal(err)
	}
	rows := randomFloats(rng, 32*benchSpec.Features)
	for b.Loop() {
		NewActor(net).Q(nil, rows)
	}
}
