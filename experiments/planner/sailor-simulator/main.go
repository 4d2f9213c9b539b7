// Command sailor-simulator plans OPT-350M on A100 and V100 devices under the cost function of Sailor's simulator and with its
// profiles, and compares with the plans that Sailor finds itself.
//
//	go run ./experiments/planner/sailor-simulator -data ../shared/data/planner
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/peers"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

// What Sailor's own program found, and in how many seconds on two cores after 7.6 s of set-up.
var runs = []struct {
	a100, v100    int
	cost, seconds float64
}{{32, 96, 5.884, 0.81}, {80, 240, 2.771, 2.25}, {128, 384, 1.912, 3.98}}

func main() {
	data := flag.String("data", "../shared/data/planner", "folder of the peers' inputs")
	out := flag.String("results", "experiments/planner/RESULTS.md", "file whose section is written anew")
	flag.Parse()
	var b strings.Builder
	fmt.Fprintf(&b, "| A100 + V100 | Sailor's best | search + set-up | ours | search with set-up | micro-batch | replicas | stages: layers on class x tensor degree |\n|---|---|---|---|---|---|---|---|\n")
	classes := []string{"A100", "V100"}
	for _, r := range runs {
		start := time.Now()
		s, err := peers.ReadSailor(filepath.Join(*data, "sailor"), "OPT-350", "us-central1-a", []string{"A100-40", "V100-16"}, []float64{40, 16})
		if err != nil {
			log.Fatal(err)
		}
		s.Batch, s.Pool = 1024, []int{r.a100, r.v100}
		plan, _, err := s.PlanSailor(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		took := time.Since(start).Seconds()
		cost, err := s.Score(plan)
		if err != nil || math.IsInf(cost, 0) {
			log.Fatal("the plan is none: ", err)
		}
		var stages []string
		for _, g := range plan.Stages {
			stages = append(stages, fmt.Sprintf("%d on %s x %d", g.To-g.From, classes[g.Replicas[0].Class], g.Replicas[0].Tensor))
		}
		fmt.Fprintf(&b, "| %d + %d | %.3f s | %.2f + 7.6 s | %.4f s | %.2f s | %d | %d | %s |\n", r.a100, r.v100, r.cost, r.seconds, cost, took,
			plan.MicroBatch, len(plan.Stages[0].Replicas), strings.Join(stages, ", "))
	}
	fmt.Print(b.String())
	if err := results.Replace(*out, "sailor-simulator", b.String()); err != nil {
		log.Fatal(err)
	}
}
