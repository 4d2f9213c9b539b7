package ddqn

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func newNet(t testing.TB, spec Spec, seed uint64) *Network {
	t.Helper()
	net, err := NewNetwork(spec, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// drawNet draws a small network with biases that are not zero.
func drawNet(t *rapid.T) *Network {
	spec := Spec{
		Features: rapid.IntRange(1, 9).Draw(t, "features"), Actions: rapid.IntRange(1, 9).Draw(t, "actions"),
		Objectives: rapid.IntRange(1, 4).Draw(t, "objectives"),
		Hidden:     rapid.SliceOfN(rapid.IntRange(1, 20), 0, 3).Draw(t, "hidden"),
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	net, err := NewNetwork(spec, rng)
	if err != nil {
		t.Fatal(err)
	}
	for i := range net.weights {
		net.weights[i] += 0.1 * float32(rng.NormFloat64())
	}
	return net
}

func TestActorHasItsOwnWeights(t *testing.T) {
	spec := Spec{Features: 2, Actions: 3, Objectives: 1, Hidden: []int{4}}
	net := newNet(t, spec, 1)
	actor := NewActor(net)
	row := []float32{1, -1}
	before := actor.Q(nil, row)
	for i := range net.weights {
		net.weights[i] += 1
	}
	if i := sameBits(actor.Q(nil, row), before); i >= 0 {
		t.Error("the actor sees changes of the network without Sync")
	}
	if err := actor.Sync(net); err != nil {
		t.Fatal(err)
	}
	after := actor.Q(nil, row)
	if sameBits(after, before) < 0 {
		t.Error("Sync changed nothing")
	}
	other := NewActor(net)
	if i := sameBits(other.Q(nil, row), after); i >= 0 {
		t.Error("a synchronised actor and a new one differ")
	}
	spec.Actions = 4
	if err := actor.Sync(newNet(t, spec, 1)); !errors.Is(err, ErrMismatch) {
		t.Errorf("Sync with another shape: %v", err)
	}
}

// An actor of some objectives gives the same bits for them as one of all, after Sync too.
func TestActorOfSomeObjectives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net := drawNet(t)
		var only []int
		for o := range net.spec.Objectives {
			if rapid.Bool().Draw(t, "asked for") {
				only = append(only, o)
			}
		}
		all, some := NewActor(net), NewActor(net, only...)
		if len(only) == 0 {
			only = append(only, rapid.IntRange(0, net.spec.Objectives-1).Draw(t, "one"))
			some = NewActor(net, only...)
		}
		rows := randomFloats(rand.New(rand.NewPCG(1, 1)), 7*net.spec.Features)
		for range 2 {
			whole, got := all.Q(nil, rows), some.Q(nil, rows)
			var want []float32
			for k := range 7 * net.spec.Actions {
				for _, o := range only {
					want = append(want, whole[k*net.spec.Objectives+o])
				}
			}
			if len(got) != len(want) || sameBits(got, want) >= 0 {
				t.Fatalf("objectives %v: %v, want %v", only, got, want)
			}
			for i := range net.weights {
				net.weights[i] *= 1.5
			}
			if err := errors.Join(all.Sync(net), some.Sync(net)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestActorQKeepsItsBuffers(t *testing.T) {
	spec := Spec{Features: 3, Actions: 2, Objectives: 1, Hidden: []int{4}}
	actor := NewActor(newNet(t, spec, 1))
	rows := make([]float32, 1024*spec.Features)
	dst := actor.Q(nil, rows)
	if got := actor.Q(dst, rows); &got[0] != &dst[0] {
		t.Error("dst was large enough and was not used")
	}
	if n := testing.AllocsPerRun(20, func() { dst = actor.Q(dst, rows) }); n > 0 {
		t.Errorf("%v allocations for a chunk", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("half a row was accepted")
		}
	}()
	actor.Q(nil, rows[:spec.Features+1])
}

func TestGreedy(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name    string
		q, w    []float32
		actions int
		want    int
	}{
		{"one objective", []float32{1, 3, 2}, []float32{1}, 3, 1},
		{"weights decide", []float32{1, 0, 0, 1}, []float32{0.4, 0.6}, 2, 1},
		{"other weights", []float32{1, 0, 0, 1}, []float32{0.6, 0.4}, 2, 0},
		{"tie to the lowest", []float32{1, 2, 2, 2}, []float32{1}, 4, 1},
		{"NaN never wins", []float32{nan, 1, nan}, []float32{1}, 3, 1},
		{"all NaN", []float32{nan, nan}, []float32{1}, 2, 0},
		{"negative", []float32{-3, -1, -2}, []float32{1}, 3, 1},
	} {
		if got := Greedy(c.q, c.actions, len(c.w), c.w); got != c.want {
			t.Errorf("%s: action %d, want %d", c.name, got, c.want)
		}
	}
}
