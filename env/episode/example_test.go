package episode_test

import (
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/env/episode"
)

// An episode with the action that takes every measurement as it comes. A network would choose by the rows.
func Example() {
	p, err := profile.New("device", "model", []profile.Point{{MicroBatch: 1, Seconds: 0.01}, {MicroBatch: 64, Seconds: 0.64}}, "measured")
	if err != nil {
		panic(err)
	}
	c := &cluster.Cluster{Workload: "model", GlobalBatch: 96, Nodes: []cluster.Node{
		{Name: "a", Profile: p, Limit: profile.NoLimit}, {Name: "b", Profile: p, Limit: profile.NoLimit}, {Name: "c", Profile: p, Limit: profile.NoLimit},
	}}
	conditions, err := cluster.Preset("drift")
	if err != nil {
		panic(err)
	}
	e, err := episode.New(episode.Config{Cluster: c, Conditions: conditions, Seed: 1, Rounds: 100, Weights: [env.Objectives]float64{1}})
	if err != nil {
		panic(err)
	}
	step, err := e.Reset() // runs the first round by the profiles alone
	if err != nil {
		panic(err)
	}
	jump := 0
	for i, a := range env.Actions {
		if a.Trust == env.Jump {
			jump = i
			break
		}
	}
	var rows []float32
	actions := make([]int, e.Size())
	steps := 0
	for ; step.Kind != episode.Last; steps++ {
		rows = e.Rows(rows) // one row of env.Features for each node
		for i := range actions {
			actions[i] = jump
		}
		if step, err = e.Step(actions); err != nil {
			panic(err)
		}
	}
	fmt.Println(steps, "steps,", len(rows), "numbers in the rows, terminal:", step.Terminal)
	// Output:
	// 99 steps, 135 numbers in the rows, terminal: false
}
