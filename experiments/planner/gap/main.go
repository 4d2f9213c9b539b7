// Command gap measures how far the plans that the search finds lie above the bound printed beside them, how long the search takes, and
// whether others find quicker plans.
//
//	go run ./experiments/planner/gap -set mixed
//	go run ./experiments/planner/gap -set mixed -rival 60s
//
// The sets: mixed, up to 48 random jobs of 9 to 60 layers on two or three kinds of devices, those left out that no plan fits; plain,
// 20 pipelines of 16 stages; degrees, 20 models of 9 to 12 layers on 4 devices alike; large, 96 layers on 64 devices alike, 32 + 32 and
// 512 + 512 of two kinds; example, the built-in one.
//
// With -rival random local search, through what plan check computes, tries for so long to beat each plan; with -degrees coordinate descent over the
// tensor degrees of layers does, from the plan and from the next best. With -early a second search is ended after a tenth of the time.
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
	set := flag.String("set", "mixed", "mixed, plain, degrees, large or example")
	jobs := flag.Int("jobs", 0, "how many of the set; 0: all")
	first := flag.Int("first", 0, "number of the first")
	var against opponents
	flag.DurationVar(&against.within, "rival", 0, "how long random local search tries to beat each plan")
	flag.BoolVar(&against.degrees, "degrees", false, "try to beat each plan by other tensor degrees of layers")
	flag.BoolVar(&against.early, "early", false, "end a second search after a tenth of the first's time")
	flag.Parse()
	sum, n := 0.0, 0
	fmt.Printf("| job | layers | devices | plan, s | bound, s | of it | search, s | MiB |%s\n|---|---|---|---|---|---|---|---|%s\n", against.heads(), against.lines())
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
		r, err := j.Search(context.Background(), planner.SearchOptions{})
		took := time.Since(start).Seconds()
		if err != nil {
			log.Printf("%s: %v", name, err)
			continue
		}
		batch := float64(r.Plan.GlobalBatch)
		seconds, bound := r.Plan.Predicted.Simulated, r.LowerBound*batch
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		fmt.Printf("| %s | %d | %d | %.5g | %.5g | %.3f | %.2f | %d |%s\n", name, len(j.Profile.Layers), devices(r.Plan), seconds, bound, bound/seconds, took, memory.Sys>>20, against.meet(j, r, i, took))
		sum += math.Log(bound / seconds)
		n++
	}
	fmt.Printf("\n%d jobs; geometric mean of bound over plan: %.4f%s\n", n, math.Exp(sum/float64(n)), against.result())
}

// opponents are what plans are compared with.
type opponents struct {
	within  time.Duration
	degrees bool
	early   bool

	late, beaten int
	most         float64
}

func (o *opponents) heads() (s string) {
	if o.within > 0 {
		s += " rival, s | quicker by |"
	}
	if o.degrees {
		s += " other degrees, s | quicker by |"
	}
	if o.early {
		s += " early, s | longer by | after, s |"
	}
	return s
}

func (o *opponents) lines() (s string) {
	for _, c := range o.heads() {
		if c == '|' {
			s += "---|"
		}
	}
	return s
}

// meet is what the opponents of a plan find, as cells of a table.
func (o *opponents) meet(j *planner.Job, r *planner.Result, seed int, took float64) (cells string) {
	x := newRival(j, uint64(seed))
	seconds := r.Plan.Predicted.Simulated
	all := append([]*planner.Plan{r.Plan}, r.Others...)
	compare := func(other float64) {
		quicker := seconds/other - 1
		o.most = max(o.most, quicker)
		if quicker > .005 {
			o.beaten++
		}
		cells += fmt.Sprintf(" %.5g | %.2f%% |", other, 100*max(0, quicker))
	}
	if o.within > 0 {
		compare(x.run(all, o.within))
	}
	if o.degrees {
		best := math.Inf(1)
		for _, p := range all[:min(len(all), 5)] {
			best = min(best, x.degrees(p))
		}
		compare(best)
	}
	if o.early {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(took/10*float64(time.Second)))
		begun, early := time.Now(), math.Inf(1)
		if r, err := j.Search(ctx, planner.SearchOptions{}); err == nil {
			early = r.Plan.Predicted.Simulated
		}
		cancel()
		if early > 1.02*seconds {
			o.late++
		}
		cells += fmt.Sprintf(" %.5g | %.1f%% | %.2f |", early, 100*(early/seconds-1), time.Since(begun).Seconds())
	}
	return cells
}

func (o *opponents) result() (s string) {
	if o.within > 0 || o.degrees {
		s += fmt.Sprintf("; %d beaten by more than .5%%, by up to %.2f%%", o.beaten, 100*o.most)
	}
	if o.early {
		s += fmt.Sprintf("; %d early plans take more than 2%% longer", o.late)
	}
	return s
}

// nth is a job of a set; nil: it has no more.
func nth(set string, i int) (j *planner.Job, name string, err error) {
	name = fmt.Sprint(set, i)
	switch {
	case set == "mixed" && i < 48:
		j, err = mixed(uint64(i))
	case set == "plain" && i < 20:
		j, err = plain(uint64(i))
	case set == "degrees" && i < 20:
		j, err = alike(uint64(i))
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
