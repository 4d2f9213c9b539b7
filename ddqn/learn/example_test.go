package learn_test

import (
	"fmt"
	"math/rand/v2"

	"evenkeel/ddqn"
	"evenkeel/ddqn/learn"
)

// Two levers, two objectives: lever 0 pays the first objective, lever 1 the second. The preference is a feature, so
// that one network serves every preference.
func Example() {
	rng := rand.New(rand.NewPCG(1, 1))
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: 2, Actions: 2, Objectives: 2, Hidden: []int{16}}, rng)
	if err != nil {
		panic(err)
	}
	replay, err := learn.NewReplay(learn.ReplayConfig{Streams: 1, Capacity: 1000, Group: 1, Features: 2, Objectives: 2})
	if err != nil {
		panic(err)
	}
	for range 400 {
		u := rng.Float32()
		w, lever := []float32{u, 1 - u}, rng.IntN(2)
		reward := []float32{float32(1 - lever), float32(lever)}
		for _, step := range []learn.Step{
			{Kind: learn.First, Rows: w, Actions: []int{lever}, Rewards: reward, Weights: w},
			{Kind: learn.Last, Rows: w, Terminal: true},
		} {
			if err := replay.Add(0, step); err != nil {
				panic(err)
			}
		}
	}
	learner, err := learn.NewLearner(learn.Config{Group: 1, LearningRate: 5e-3, DecayUpdates: 1000}, net, rand.NewPCG(1, 2))
	if err != nil {
		panic(err)
	}
	for range 1000 {
		if _, err := learner.Update(replay); err != nil {
			panic(err)
		}
	}
	actor := ddqn.NewActor(net)
	for _, w := range [][]float32{{0.9, 0.1}, {0.2, 0.8}} {
		fmt.Printf("weights %v: lever %d\n", w, ddqn.Greedy(actor.Q(nil, w), 2, 2, w))
	}
	// Output:
	// weights [0.9 0.1]: lever 0
	// weights [0.2 0.8]: lever 1
}
