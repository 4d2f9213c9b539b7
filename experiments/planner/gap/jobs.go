package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner"
	"evenkeel/planner/layerprofile"
)

// kind is a sort of layer: its size, and its seconds for a sample on a device of speed 1.
type kind struct {
	parameters, output, seconds, activation float64
}

// runs are those of a kind of layer on a device: a fixed part, a part for each sample, and what tensor parallelism costs.
func (k kind) runs(device string, slow float64, tensors, micros []int) (all []layerprofile.Run) {
	for _, t := range tensors {
		for _, b := range micros {
			f := k.seconds * slow * (0.15 + float64(b)) / float64(t) * (1 + 0.06*float64(t-1))
			all = append(all, layerprofile.Run{
				Device: device, Tensor: t, MicroBatch: b, Forward: f, Backward: 2 * f,
				Update: k.parameters / float64(t) * 20e-12 * slow, Activation: k.activation / (0.3 + 0.7*float64(t)),
			})
		}
	}
	return all
}

// machines are a class of devices in the cluster file.
func machines(device string, count, per int, memory, inside, link float64) string {
	return fmt.Sprintf("  - {device: %s, count: %d, per_machine: %d, memory: %.0fMiB, inside: {bandwidth: %.0fMB/s, latency: 5us}, link: {bandwidth: %.0fMB/s, latency: 10us}}\n",
		device, count, per, memory/(1<<20), inside/1e6, link/1e6)
}

func job(name string, kinds []kind, slow map[string]float64, tensors, micros []int, nodes string, o planner.Options) (*planner.Job, error) {
	p := &layerprofile.Profile{Model: name}
	for i, k := range kinds {
		l := layerprofile.Layer{Name: fmt.Sprint("layer", i), Parameters: k.parameters, Output: k.output}
		for _, d := range []string{"a", "b", "c"} {
			if s, ok := slow[d]; ok {
				l.Runs = append(l.Runs, k.runs(d, s, tensors, micros)...)
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish(name); err != nil {
		return nil, err
	}
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes:\n"+nodes), name, nil)
	if err != nil {
		return nil, err
	}
	return planner.NewJob(p, top, o)
}

// mixed is a random model of 9 to 60 layers, a few kinds of them between an embedding and a head, on 8 to 64 devices of
// two or three classes.
func mixed(seed uint64) (*planner.Job, error) {
	rng := rand.New(rand.NewPCG(seed, 31))
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	width := between(1024, 8192)
	tokens := 1024.0
	block := func() kind {
		p := 12 * width * width * between(0.5, 2)
		return kind{p, tokens * width * 2, p * 2 * tokens / 1e14 * between(0.7, 1.4), tokens * width * between(16, 40)}
	}
	vocabulary := 32000 * width
	kinds := []kind{{vocabulary, tokens * width * 2, 2e-5, tokens * width * 2}}
	sorts := []kind{block(), block(), block()}[:1+rng.IntN(3)]
	for i, n := 0, 7+rng.IntN(52); i < n; i++ {
		kinds = append(kinds, sorts[i*len(sorts)/n])
	}
	kinds = append(kinds, kind{vocabulary, tokens * 4, vocabulary * 2 * tokens / 1e14, tokens * 32000 * 4})
	slow := map[string]float64{}
	nodes := ""
	for i, d := range []string{"a", "b", "c"}[:2+rng.IntN(2)] {
		slow[d] = 1
		if i > 0 {
			slow[d] = between(1.2, 4)
		}
		per := []int{1, 2, 4, 8}[rng.IntN(4)]
		count := per * (1 + rng.IntN(max(1, 24/per)))
		nodes += machines(d, max(count, 4/per*per), per, between(24, 80)*(1<<30), between(20e9, 300e9), between(3e9, 50e9))
	}
	return job(fmt.Sprint("mixed", seed), kinds, slow, []int{1, 2, 4, 8}, []int{1, 2, 4, 8}, nodes,
		planner.Options{GlobalBatches: []int{[]int{64, 128, 256, 512}[rng.IntN(4)]}})
}

// plain is a pipeline of 16 stages of one device each: layers of random times, nothing else to choose.
func plain(seed uint64) (*planner.Job, error) {
	rng := rand.New(rand.NewPCG(seed, 32))
	var kinds []kind
	for range 24 + rng.IntN(100) {
		kinds = append(kinds, kind{1e6, 1e6 * rng.Float64(), 1e-3 * math.Exp(rng.NormFloat64()), 1e6})
	}
	return job(fmt.Sprint("plain", seed), kinds, map[string]float64{"a": 1}, []int{1}, []int{1}, machines("a", 16, 1, 40<<30, 1e10, 1e10),
		planner.Options{GlobalBatches: []int{512}, MicroBatches: []int{1}, Replicas: []int{1}, LeastStages: 16, MostStages: 16})
}

// large is 96 layers, 22 billion parameters, on a A100 and b V100.
func large(a, b int) (*planner.Job, error) {
	vocabulary := kind{50000 * 4096, 2048 * 4096 * 2, 1e-4, 2048 * 4096 * 2}
	head := kind{50000 * 4096, 2048 * 4096 * 2, 8e-3, 2048 * 4096 * 8}
	kinds := []kind{vocabulary}
	for range 94 {
		kinds = append(kinds, kind{12 * 4096 * 4096, 2048 * 4096 * 2, 8e-3, 2048 * 4096 * 34})
	}
	nodes := machines("a", a, 8, 40<<30, 200e9, 25e9)
	if b > 0 {
		nodes += machines("b", b, 8, 32<<30, 100e9, 10e9)
	}
	return job("large", append(kinds, head), map[string]float64{"a": 1, "b": 2.2}, []int{1, 2, 4, 8}, []int{1, 2, 4, 8}, nodes,
		planner.Options{GlobalBatches: []int{1024}})
}

// example is the one built in.
func example() (*planner.Job, error) {
	p, t, err := planner.Example()
	if err != nil {
		return nil, err
	}
	return planner.NewJob(p, t, planner.Options{GlobalBatches: []int{1024}})
}
