// Command piper plans BERT-96 on equal devices under Piper's cost function and input, and compares with the plans that
// Piper finds itself.
//
//	go run ./experiments/planner/piper -data ../shared/data/planner
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/peers"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

// What Piper's own program found, and in how many seconds on two cores.
var runs = []struct {
	devices       int
	cost, seconds float64
}{{64, 0.06607, 0.96}, {1024, 0.005088, 15.1}}

func main() {
	data := flag.String("data", "../shared/data/planner", "folder of the peers' inputs")
	out := flag.String("results", "experiments/planner/RESULTS.md", "file whose section is written anew")
	flag.Parse()
	var b strings.Builder
	fmt.Fprintf(&b, "| devices | Piper's best | search | ours | search | stages |\n|---|---|---|---|---|---|\n")
	for _, r := range runs {
		start := time.Now()
		file, err := os.Open(filepath.Join(*data, "piper", "bert32a100.json"))
		if err != nil {
			log.Fatal(err)
		}
		p, err := peers.ReadPiper(file)
		file.Close()
		if err == nil {
			err = p.Repeat(96)
		}
		if err != nil {
			log.Fatal(err)
		}
		p.Devices, p.Batch, p.Memory, p.Bandwidth = r.devices, 512, 8<<30, 25*(1<<30)
		plan, _, err := p.PlanPiper(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		took := time.Since(start).Seconds()
		cost, err := p.Score(plan)
		if err != nil || math.IsInf(cost, 0) {
			log.Fatal("the plan is none: ", err)
		}
		fmt.Fprintf(&b, "| %d | %.5g s | %.2f s | %.6g s | %.2f s | %d |\n", r.devices, r.cost, r.seconds, cost, took, len(plan))
	}
	fmt.Print(b.String())
	if err := results.Replace(*out, "piper", b.String()); err != nil {
		log.Fatal(err)
	}
}
