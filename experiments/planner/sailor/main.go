// Command sailor plans OPT-350M on A100 and V100 under Sailor's own cost function, on its own profiles, and compares with
// the plans that Sailor finds.
//
//	go run ./experiments/planner/sailor -data ../shared/data/planner/sailor
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"evenkeel/experiments/internal/measured"
	"evenkeel/planner/search"
)

// tensors are Sailor's degrees on machines of four.
var tensors = []int{1, 2, 4}

// input is what Sailor reads.
type input struct {
	global  int
	layers  int
	types   [2]device
	sizes   map[int]sizes
	outputs []float64 // floats of a sample after each layer
	links   map[link]rate
}

type device struct {
	name   string
	count  int
	memory float64
	times  map[int]map[int][]float64 // forward and backward seconds by micro-batch, tensor degree and layer
}

// sizes are floats of layers 0..l-1 at a tensor degree.
type sizes struct{ parameters, activations []float64 }

// link is between two types with so many devices at each end.
type link struct{ from, devices, to, others int }

type rate struct {
	coefficients []float64
	bandwidth    float64
}

const zone = "us-central1-a"

func main() {
	data := flag.String("data", "../shared/data/planner/sailor", "Sailor's folder of inputs")
	flag.Parse()
	var b strings.Builder
	b.WriteString("| devices | Sailor's plan, s | ours, s | of it | seconds, set-up included | stages | replicas | micro-batch |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range []struct {
		a100, v100 int
		sailor     float64
	}{{32, 96, 5.884}, {80, 240, 2.771}, {128, 384, 1.912}} {
		begun := time.Now()
		in, err := read(*data, c.a100, c.v100)
		if err != nil {
			log.Fatal(err)
		}
		best, plan, total, err := in.search()
		if err != nil {
			log.Fatal(err)
		}
		took := time.Since(begun).Seconds()
		// The search bounds boundaries from above.
		again := best.rescore(plan)
		if again > total*(1+1e-9) {
			log.Fatalf("the plan scores %v when priced anew, %v in the search", again, total)
		}
		total = again
		fmt.Fprintf(&b, "| %d A100 + %d V100 | %.3f | %.3f | %.3f | %.2f | %d | %d | %d |\n", c.a100, c.v100, c.sailor, total, total/c.sailor, took, len(plan), best.replicas, best.micro)
		for _, s := range plan {
			log.Printf("layers %d-%d: %+v", s.From, s.To-1, best.forms[s.Shape])
		}
	}
	fmt.Print(b.String())
}

// search tries every micro-batch, and of the numbers of replicas the smallest for each number of micro-batches.
func (in *input) search() (*condition, []search.Choice, float64, error) {
	var conditions []search.Costs
	for _, micro := range []int{1, 2, 4, 8} {
		last := 0
		for replicas := 1; replicas <= in.types[0].count+in.types[1].count && replicas*micro <= in.global; replicas++ {
			n := (in.global + micro*replicas - 1) / (micro * replicas)
			if n == last {
				continue
			}
			last = n
			conditions = append(conditions, in.condition(micro, replicas))
		}
	}
	found, err := search.Run(context.Background(), conditions, search.Options{Tolerance: 1e-3, Width: 40})
	if err != nil {
		return nil, nil, 0, err
	}
	best := found.Best[0]
	return conditions[best.Condition].(*condition), best.Choices, best.Total, nil
}

func read(root string, a100, v100 int) (*input, error) {
	in := &input{global: 1024, sizes: map[int]sizes{}, links: map[link]rate{}}
	in.types[0] = device{"A100-40", a100, 40 << 30, nil}
	in.types[1] = device{"V100-16", v100, 16 << 30, nil}
	for g := range in.types {
		var profile map[string]map[string]map[string][]float64
		if err := measured.JSON(root+"/profiles/OPT-350/"+in.types[g].name+"/profile.json", &profile); err != nil {
			return nil, err
		}
		in.types[g].times = map[int]map[int][]float64{}
		for micro, byTensor := range profile {
			b, _ := strconv.Atoi(micro)
			in.types[g].times[b] = map[int][]float64{}
			for tensor, layers := range byTensor {
				t, _ := strconv.Atoi(tensor)
				in.layers = len(layers)
				all := make([]float64, len(layers))
				for l := range all {
					x := layers[strconv.Itoa(l)]
					all[l] = x[0] + x[1]
				}
				in.types[g].times[b][t] = all
			}
		}
	}
	var info map[string]map[string]map[string]struct {
		Parameters float64 `json:"params_floats"`
		Activation float64 `json:"act_mem_floats"`
		Output     float64 `json:"act_output_floats"`
	}
	if err := measured.JSON(root+"/llm_info.json", &info); err != nil {
		return nil, err
	}
	for _, t := range tensors {
		s := sizes{make([]float64, in.layers+1), make([]float64, in.layers+1)}
		for l := range in.layers {
			x := info["OPT-350"][strconv.Itoa(t)][strconv.Itoa(l)]
			s.parameters[l+1], s.activations[l+1] = s.parameters[l]+x.Parameters, s.activations[l]+x.Activation
			if t == 1 {
				in.outputs = append(in.outputs, x.Output)
			}
		}
		in.sizes[t] = s
	}
	var network map[string]map[string]map[string]map[string]map[string]map[string][]json.RawMessage
	if err := measured.JSON(root+"/providers/multizone_bandwidths_het.json", &network); err != nil {
		return nil, err
	}
	for a, from := range in.types {
		for b, to := range in.types {
			for _, n := range tensors {
				for _, m := range tensors {
					entry := network[zone][from.name][strconv.Itoa(n)][zone][to.name][strconv.Itoa(m)]
					var r rate
					if len(entry) != 2 || json.Unmarshal(entry[0], &r.coefficients) != nil || json.Unmarshal(entry[1], &r.bandwidth) != nil {
						return nil, fmt.Errorf("no bandwidth from %d %s to %d %s", n, from.name, m, to.name)
					}
					in.links[link{a, n, b, m}] = r
				}
			}
		}
	}
	return in, nil
}
