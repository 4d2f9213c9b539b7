package learn

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"evenkeel/ddqn"
)

// This file is what only the products of internal/matrix promise, and not those of OpenBLAS: bits.

// trainedNet runs a short training and returns the network.
func trainedNet(t *testing.T, updates int) *ddqn.Network {
	t.Helper()
	spec := ddqn.Spec{Features: 6, Actions: 4, Objectives: 2, Hidden: []int{19, 16}}
	net := newNet(t, spec, 3)
	learner, err := NewLearner(Config{Batch: 8, Group: 2}, net, rand.NewPCG(8, 9))
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
	var first *ddqn.Network
	for range 2 {
		net := trainedNet(t, 50)
		if first == nil {
			first = net
		} else if !net.Equal(first) {
			t.Error("the same seed gave other weights")
		}
	}
	if first.Equal(newNet(t, first.Spec(), 3)) {
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
