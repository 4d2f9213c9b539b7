package agent_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
)

// The embedded policy sizes the micro-batches of a simulated cluster for ten rounds.
func Example() {
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	conditions, err := cluster.Preset("interference")
	if err != nil {
		log.Fatal(err)
	}
	trained, err := agent.Embedded() // or agent.Load("policy.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	policy := trained.NewAgent(c, cluster.Objectives{Speed: 1}.Weights())
	control := &agent.Control{Cluster: c, Runner: sim.New(c, conditions, 1), Policy: policy}
	var round agent.Round
	for range 10 {
		if round, err = control.Round(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	sum := 0
	for _, size := range round.Plan.Sizes {
		sum += size
	}
	fmt.Printf("round %d: %d nodes share %d samples\n", round.Report.Round, len(round.Plan.Sizes), sum)
	why := policy.Explain(0)
	fmt.Printf("%s: measured %s, trust %s\n", why.Node, why.Measured.Status, why.Chosen.Trust)
	// Output:
	// round 9: 8 nodes share 320 samples
	// a6000-0: measured in, trust filter
}

// A program that is driven by events plans without a Runner: here the report of the first plan comes
// when the second is handed out already.
func ExampleControl_Next() {
	c := &cluster.Cluster{Workload: "mine", GlobalBatch: 30, Nodes: []cluster.Node{{Name: "fast", Limit: 30}, {Name: "slow", Limit: 30}}}
	control := &agent.Control{Cluster: c, Policy: agent.NewModel(c), Behind: 8}
	all := []bool{true, true}
	report := func(plan int, seconds ...float64) *cluster.Report {
		r := &cluster.Report{Plan: plan, Wait: time.Second, Accepted: 30}
		for _, s := range seconds {
			r.Nodes = append(r.Nodes, cluster.NodeReport{Status: cluster.In, Size: 15, Samples: 15, Seconds: s})
		}
		return r
	}
	first, err := control.Next(nil, all)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Number, first.Sizes)
	for range 2 {
		plan, err := control.Next(report(1, 1, 2), all)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(plan.Number, plan.Sizes) // from one size each a quarter of the time is taken for overhead
	}
	// Output:
	// 1 [15 15]
	// 2 [22 8]
	// 3 [22 8]
}
