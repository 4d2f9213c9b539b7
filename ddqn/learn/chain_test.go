package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/ddqn"
)

// The chain: states 0 to 7, action 1 goes right, action 0 goes left; 0.2 for staying at the left end, 1 for
// reaching state 7, which is terminal. Episodes are cut after 30 steps, which must not change the values.
const (
	chainStates = 8
	chainGamma  = 0.9
	chainLimit  = 30
)

func chainStep(state, action int) (next int, reward float64, terminal bool) {
	next = max(state+2*action-1, 0)
	switch {
	case next == chainStates-1:
		return next, 1, true
	case state == 0 && next == 0:
		return next, 0.2, false
	}
	return next, 0, false
}

func chainOptimum() [chainStates][2]float64 {
	var q [chainStates][2]float64
	for range 1000 {
		for s := range chainStates - 1 {
			for a := range 2 {
				next, r, terminal := chainStep(s, a)
				if !terminal {
					r += chainGamma * math.Max(q[next][0], q[next][1])
				}
				q[s][a] = r
			}
		}
	}
	return q
}

func chainRow(state int) []float32 {
	row := make([]float32, chainStates)
	row[state] = 1
	return row
}

// One-step returns, because the behaviour is random and n-step returns are those of the behaviour.
func TestChainReachesOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	replay, err := NewReplay(ReplayConfig{Streams: 1, Capacity: 5000, Group: 1, Features: chainStates, Objectives: 1})
	if err != nil {
		t.Fatal(err)
	}
	for replay.size() < 5000-chainLimit {
		state, kind := rng.IntN(chainStates-1), First
		for i := 0; ; i++ {
			action := rng.IntN(2)
			next, reward, terminal := chainStep(state, action)
			step := Step{Kind: kind, Rows: chainRow(state), Actions: []int{action}, Rewards: []float32{float32(reward)}, Weights: []float32{1}}
			if err := replay.Add(0, step); err != nil {
				t.Fatal(err)
			}
			state, kind = next, Mid
			if terminal || i == chainLimit {
				if err := replay.Add(0, Step{Kind: Last, Terminal: terminal, Rows: chainRow(state)}); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	const updates = 12000
	net := newNet(t, ddqn.Spec{Features: chainStates, Actions: 2, Objectives: 1, Hidden: []int{32}}, 1)
	learner, err := NewLearner(Config{
		Group: 1, NStep: 1, Gamma: chainGamma, Tau: 0.01, LearningRate: 2e-3, DecayUpdates: updates,
	}, net, rand.NewPCG(3, 4))
	if err != nil {
		t.Fatal(err)
	}
	for range updates {
		if _, err := learner.Update(replay); err != nil {
			t.Fatal(err)
		}
	}
	actor := ddqn.NewActor(net)
	worst, want := 0.0, chainOptimum()
	for s := range chainStates - 1 {
		for a, q := range actor.Q(nil, chainRow(s)) {
			worst = math.Max(worst, math.Abs(float64(q)-want[s][a]))
		}
	}
	t.Logf("largest |Q - Q*| after %d updates: %.4f", updates, worst)
	if !(worst < 0.02) {
		t.Errorf("largest |Q - Q*| is %v, must be below 0.02", worst)
	}
}
