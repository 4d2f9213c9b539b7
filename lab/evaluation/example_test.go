package evaluation_test

import (
	"context"
	"fmt"
	"log"

	"evenkeel/agent"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/lab/evaluation"
)

// Three policies face the same clusters, seed by seed. Progress is goodput over that of an
// oracle that knows the true rates.
func ExampleCompare() {
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	conditions, err := cluster.Preset("drift")
	if err != nil {
		log.Fatal(err)
	}
	trained, err := agent.Embedded()
	if err != nil {
		log.Fatal(err)
	}
	policies, err := evaluation.Find([]string{"ddqn", "model", "uniform"})
	if err != nil {
		log.Fatal(err)
	}
	results, err := evaluation.Compare(context.Background(), evaluation.Config{
		Cases:     []evaluation.Case{{Name: "heldout-8", Cluster: c, Weights: cluster.Objectives{Speed: 1}.Weights()}},
		Scenarios: []evaluation.Scenario{{Name: "drift", Conditions: conditions}},
		Policies:  policies,
		Trained:   trained,
		Seeds:     4,
		Rounds:    50,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%-12s %.2f\n", r.Policy, r.Progress)
	}
	// Output:
	// ddqn         1.02
	// model        1.02
	// uniform      0.44
}

// A single run of a policy of one's own.
func ExamplePlay() {
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	s := sim.New(c, cluster.Conditions{}, 1)
	score, err := evaluation.Play(context.Background(), c, s, agent.NewModel(c), 20, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d rounds, %.0f%% of the nodes' time idle\n", score.Rounds, 100*score.Waiting)
	// Output:
	// 20 rounds, 1% of the nodes' time idle
}
