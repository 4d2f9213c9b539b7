package ddqn

import (
	"math/rand/v2"
	"testing"
)

// This file is what only the products of internal/matrix promise, and not those of OpenBLAS: bits.

// A row's values depend on nothing but the row: not on the chunk it is in, its place, or its neighbours.
func TestActorRowsAreIndependent(t *testing.T) {
	spec := Spec{Features: 5, Actions: 3, Objectives: 2, Hidden: []int{8}}
	actor := NewActor(newNet(t, spec, 1))
	rng := rand.New(rand.NewPCG(2, 2))
	all := randomFloats(rng, 3000*spec.Features)
	var want []float32
	for i := range 3000 {
		want = append(want, actor.Q(nil, all[i*spec.Features:][:spec.Features])...)
	}
	out := spec.outputs()
	for _, n := range []int{0, 1, 2, 3, 4, 5, 8, 9, 16, 33, 63, 64, 65, 129, 512, 513, 1000, 1024, 1025, 1537, 2049, 3000} {
		got := actor.Q(nil, all[:n*spec.Features])
		if i := sameBits(got, want[:n*out]); i >= 0 {
			t.Errorf("%d rows: value %d is %v, row by row %v", n, i, got[i], want[i])
		}
		// The same rows in another order give the same values in that order.
		order := rng.Perm(n)
		mixed := make([]float32, 0, n*spec.Features)
		for _, k := range order {
			mixed = append(mixed, all[k*spec.Features:][:spec.Features]...)
		}
		got = actor.Q(got, mixed)
		for i, k := range order {
			if j := sameBits(got[i*out:][:out], want[k*out:][:out]); j >= 0 {
				t.Errorf("%d rows permuted: row %d, value %d is %v, want %v", n, k, j, got[i*out+j], want[k*out+j])
			}
		}
	}
}
