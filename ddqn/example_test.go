package ddqn_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/ddqn"
)

// Two levers, two objectives: lever 0 pays the first objective, lever 1 the second. The preference is a feature, so
// that one network serves every preference.
func Example() {
	rng := rand.New(rand.NewPCG(1, 1))
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: 2, Actions: 2, Objectives: 2, Hidden: []int{16}}, rng)
	if err != nil {
		panic(err)
	}
	replay, err := ddqn.NewReplay(ddqn.ReplayConfig{Streams: 1, Capacity: 1000, Group: 1, Features: 2, Objectives: 2})
	if err != nil {
		panic(err)
	}
	for range 400 {
		u := rng.Float32()
		w, lever := []float32{u, 1 - u}, rng.IntN(2)
		reward := []float32{float32(1 - lever), float32(lever)}
		for _, step := range []ddqn.Step{
			{Kind: ddqn.First, Rows: w, Actions: []int{lever}, Rewards: reward, Weights: w},
			{Kind: ddqn.Last, Rows: w, Terminal: true},
		} {
			if err := replay.Add(0, step); err != nil {
				panic(err)
			}
		}
	}
	learner, err := ddqn.NewLearner(ddqn.LearnerConfig{Group: 1, LearningRate: 5e-3, DecayUpdates: 1000}, net, rand.NewPCG(1, 2))
	if err != nil {
		panic(err)
	}
	for range 1000 {
		if _, err := learner.Update(replay); err != nil {
			panic(err)
		}
	}
	actor := ddqn.NewActor(net)
	defer actor.Close()
	for _, w := range [][]float32{{0.9, 0.1}, {0.2, 0.8}} {
		fmt.Printf("weights %v: lever %d\n", w, ddqn.Greedy(actor.Q(nil, w), 2, 2, w))
	}
	// Output:
	// weights [0.9 0.1]: lever 0
	// weights [0.2 0.8]: lever 1
}

// Networks in a file, with what is to be known of them.
func ExampleSave() {
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: 2, Actions: 2, Objectives: 1, Hidden: []int{16}}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		panic(err)
	}
	folder, err := os.MkdirTemp("", "ddqn-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "policy.safetensors")
	if err := ddqn.Save(path, map[string]*ddqn.Network{"nodes": net}, map[string]string{"trained_on": "levers"}); err != nil {
		panic(err)
	}
	nets, about, err := ddqn.Load(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(nets["nodes"].Equal(net), about["trained_on"])
	// Output: true levers
}
