package live_test

import (
	"fmt"
	"log"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/cluster/profile"
)

// A job of two ranks starts, is handed sizes, and reports its first round, twice.
func Example() {
	start := live.Registration{GlobalBatch: 64, Ranks: []live.Rank{{Name: "host-a/0", Device: "NVIDIA A10G"}, {Name: "host-b/0", Device: "cpu"}}}
	if err := start.Validate(); err != nil {
		log.Fatal(err)
	}
	c, err := start.Cluster("", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	g := live.NewGeneration(c)
	g.Hand(cluster.Plan{Number: 1, Sizes: []int{32, 32}, Collect: c.Collect}, 0)
	round := &live.Report{Round: 0, Plan: 1, WaitSeconds: 0.8, Ranks: []*live.RankReport{
		{Seconds: 0.2, Samples: 32, MicroSteps: 1}, {Seconds: 0.8, Samples: 32, MicroSteps: 1},
	}}
	for range 2 {
		verdict, report, err := g.Take(round, time.Second)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(verdict)
		if report != nil {
			fmt.Printf("%d samples in %v; %s waited %.1f s\n", report.Accepted, report.Wait, c.Nodes[0].Name, report.Nodes[0].Idle)
		}
	}
	round.Round, round.Ranks[1].Samples = 1, 64
	_, _, err = g.Take(round, time.Second)
	fmt.Println(err)
	// Output:
	// accepted
	// 64 samples in 800ms; host-a/0 waited 0.6 s
	// duplicate
	// live: ranks[1].samples: is 64; plan 1 hands rank 1 a share of 32
}
