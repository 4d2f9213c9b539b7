// Command gap measures how far the plans that the search finds lie above the bound printed beside them, and how long the search takes.
//
//	go run ./experiments/planner/gap -set mixed
//
// The sets: mixed, up to 48 random jobs of 9 to 60 layers on two or three kinds of devices, those left out that no plan fits; plain,
// 20 pipelines of 16 stages; large, 96 layers on 64 devices alike, 32 + 32 and 512 + 512 of two kinds; example, the built-in one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"runtime"
	"time"

	"evenkeel/planner"
)

func main() {
	set := flag.String("set", "mixed", "mixed, plain, large or example")
	jobs := flag.Int("jobs", 0, "how many of the set; 0: all")
	first := flag.Int("first", 0, "number of the first")
	bound := flag.Bool("bound", true, "bound the plans; without, the bound is 0")
	flag.Parse()
	sum, n := 0.0, 0
	fmt.Print("| job | layers | devices | plan, s | bound, s | of it | search, s | MiB |\n|---|---|---|---|---|---|---|---|\n")
	for i := *first; *jobs == 0 || n < *jobs; i++ {
		j, name, err := nth(*set, i)
		if err != nil {
			log.Printf("%s: %v", name, err)
			continue
		}
		if j == nil {
			break
		}
		start := time.Now()
		r, err := j.Search(context.Background(), planner.SearchOptions{Bound: *bound})
		took := time.Since(start).Seconds()
		if err != nil {
			log.Printf("%s: %v", name, err)
			continue
		}
		batch := float64(r.Plan.GlobalBatch)
		seconds, least := r.Plan.Predicted.Simulated, r.LowerBound*batch
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		fmt.Printf("| %s | %d | %d | %.7g | %.5g | %.3f | %.2f | %d |\n", name, len(j.Profile.Layers), devices(r.Plan), seconds, least, least/seconds, took, memory.Sys>>20)
		sum += math.Log(least / seconds)
		n++
	}
	fmt.Printf("\n%d jobs; geometric mean of bound over plan: %.4f\n", n, math.Exp(sum/float64(n)))
}

// nth is a job of a set; nil: it has no more.
func nth(set string, i int) (j *planner.Job, name string, err error) {
	name = fmt.Sprint(set, i)
	switch {
	case set == "mixed" && i < 48:
		j, err = mixed(uint64(i))
	case set == "plain" && i < 20:
		j, err = plain(uint64(i))
	case set == "large" && i < 3:
		n := [][2]int{{64, 0}, {32, 32}, {512, 512}}[i]
		name = fmt.Sprintf("%d+%d", n[0], n[1])
		j, err = large(n[0], n[1])
	case set == "example" && i < 1:
		j, err = example()
	}
	return j, name, err
}

// devices is the number of devices that a plan uses.
func devices(p *planner.Plan) (n int) {
	for _, s := range p.Stages {
		for _, g := range s.Groups {
			n += g.Count
		}
	}
	return n
}
