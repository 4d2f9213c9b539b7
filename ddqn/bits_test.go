//go:build !openblas

package ddqn

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// This file is what only the products of internal/matrix promise, and not those of OpenBLAS: bits.

// A row's values depend on nothing but the row: not on the chunk it is in, its place, or its neighbours.
func TestActorRowsAreIndependent(t *testing.T) {
	spec := Spec{Features: 5, Actions: 3, Objectives: 2, Hidden: []int{8}}
	actor := NewActor(newNet(t, spec, 1))
	defer actor.Close()
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

// trainedNet runs a short training and returns the network.
func trainedNet(t *testing.T, updates int) *Network {
	t.Helper()
	spec := Spec{Features: 6, Actions: 4, Objectives: 2, Hidden: []int{19, 16}}
	net := newNet(t, spec, 3)
	learner, err := NewLearner(LearnerConfig{Batch: 8, Group: 2, Pooled: []bool{false, true}}, net, rand.NewPCG(8, 9))
	if err != nil {
		t.Fatal(err)
	}
	replay := randomReplay(t, ReplayConfig{Streams: 2, Capacity: 100, Group: 2, Features: 6, Objectives: 2}, 4, 150, rand.New(rand.NewPCG(4, 4)))
	for range updates {
		if _, err := learner.Update(replay); err != nil {
			t.Fatal(err)
		}
	}
	return net
}

func TestSameSeedSameBits(t *testing.T) {
	var first *Network
	for range 2 {
		net := trainedNet(t, 50)
		if first == nil {
			first = net
		} else if !net.Equal(first) {
			t.Error("the same seed gave other weights")
		}
	}
	if first.Equal(newNet(t, first.spec, 3)) {
		t.Error("training changed nothing")
	}
}

func TestResumeIsBitExact(t *testing.T) {
	for _, at := range []int{0, 1, 5, 63, 150} {
		whole := newRun(t, 1)
		whole.advance(t, 0, at)
		saved := whole.bytes(t)

		resumed := newRun(t, 2) // another seed: everything must come from the file
		resumed.advance(t, 0, 7)
		if err := resumed.learner.LoadState(iotest.OneByteReader(bytes.NewReader(saved)), resumed.replay); err != nil {
			t.Fatal(err)
		}
		if again := resumed.bytes(t); !bytes.Equal(again, saved) {
			t.Errorf("at %d: the state of a resumed run differs from the state that it was resumed from", at)
		}
		copy(resumed.kinds, whole.kinds)
		whole.advance(t, at, at+120)
		resumed.advance(t, at, at+120)
		if !bytes.Equal(whole.bytes(t), resumed.bytes(t)) {
			t.Errorf("at %d: 120 steps later the resumed run differs from the one that was not interrupted", at)
		}
		if !whole.learner.Network().Equal(resumed.learner.Network()) || whole.learner.Updates() != resumed.learner.Updates() {
			t.Errorf("at %d: networks differ", at)
		}
	}
}
