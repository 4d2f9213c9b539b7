package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/ddqn"
)

func randomFloats(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

// sameBits returns the index of the first value that is not the same bits, or -1.
func sameBits(a, b []float32) int {
	if len(a) != len(b) {
		return 0
	}
	for i := range a {
		// Which of several NaN patterns comes out is the processor's choice.
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]) {
			return i
		}
	}
	return -1
}

func newNet(t testing.TB, spec ddqn.Spec, seed uint64) *ddqn.Network {
	t.Helper()
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// randomStep draws a step that fits the configuration.
func randomStep(c ReplayConfig, actions int, kind Kind, rng *rand.Rand) Step {
	s := Step{
		Kind: kind, Rows: randomFloats(rng, c.Group*c.Features), Live: make([]bool, c.Group),
		Actions: make([]int, c.Group), Rewards: randomFloats(rng, c.Group*c.Objectives),
		Weights: make([]float32, c.Objectives),
	}
	for i := range c.Group {
		s.Live[i] = rng.Float64() < 0.9
		s.Actions[i] = rng.IntN(actions)
	}
	for i := range s.Weights {
		s.Weights[i] = rng.Float32()
	}
	s.Terminal = kind == Last && rng.IntN(2) == 0
	return s
}

// randomReplay fills every stream with steps of episodes of random lengths.
func randomReplay(t testing.TB, c ReplayConfig, actions, steps int, rng *rand.Rand) *Replay {
	t.Helper()
	r, err := NewReplay(c)
	if err != nil {
		t.Fatal(err)
	}
	for s := range c.Streams {
		kind := First
		for range steps {
			if err := r.Add(s, randomStep(c, actions, kind, rng)); err != nil {
				t.Fatal(err)
			}
			switch {
			case kind == Last:
				kind = First
			case rng.IntN(20) == 0:
				kind = Last
			default:
				kind = Mid
			}
		}
	}
	return r
}
