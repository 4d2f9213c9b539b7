package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
)

// transformer is 96 equal blocks between an embedding and a head, roughly of 22 billion parameters, on a100 and v100
// (2.2 times as slow, 32 GB).
func large(tb testing.TB, a100, v100 int) *Job {
	tb.Helper()
	p := &layerprofile.Profile{Model: "large"}
	add := func(name string, parameters, seconds, activation float64) {
		l := layerprofile.Layer{Name: name, Parameters: parameters, Output: 2048 * 4096 * 2}
		for d, slow := range map[string]float64{"a100": 1, "v100": 2.2} {
			for _, t := range []int{1, 2, 4, 8} {
				for _, b := range []int{1, 2, 4, 8} {
					f := seconds * slow * (0.15 + float64(b)) / float64(t) * (1 + 0.06*float64(t-1))
					l.Runs = append(l.Runs, layerprofile.Run{Device: d, Tensor: t, MicroBatch: b, Forward: f, Backward: 2 * f, Update: parameters / float64(t) * 20e-12 * slow, Activation: activation / (0.3 + 0.7*float64(t))})
				}
			}
		}
		p.Layers = append(p.Layers, l)
	}
	add("embedding", 50000*4096, 1e-4, 2048*4096*2)
	for i := range 94 {
		add(fmt.Sprintf("block%d", i+1), 12*4096*4096, 8e-3, 2048*4096*34)
	}
	add("head", 50000*4096, 8e-3, 2048*4096*8)
	if err := p.Finish("large"); err != nil {
		tb.Fatal(err)
	}
	yaml := "nodes:\n"
	if a100 > 0 {
		yaml += fmt.Sprintf("  - {device: a100, count: %d, per_machine: 8, memory: 40GiB, inside: {bandwidth: 200GB/s, latency: 5us}, link: {bandwidth: 25GB/s, latency: 10us}}\n", a100)
	}
	if v100 > 0 {
		yaml += fmt.Sprintf("  - {device: v100, count: %d, per_machine: 8, memory: 32GiB, inside: {bandwidth: 100GB/s, latency: 5us}, link: {bandwidth: 10GB/s, latency: 15us}}\n", v100)
	}
	top, err := clusterfile.ReadTopology(strings.NewReader(yaml), "t", nil)
	if err != nil {
		tb.Fatal(err)
	}
	j, err := NewJob(p, top, Options{GlobalBatches: []int{1024}})
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range [][2]int{{64, 0}, {32, 32}, {512, 512}} {
		b.Run(fmt.Sprintf("%d+%d", n[0], n[1]), func(b *testing.B) {
			job := large(b, n[0], n[1])
			for b.Loop() {
				r, err := job.Search(context.Background(), SearchOptions{Bound: true})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.Gap(), "gap")
				b.ReportMetric(float64(r.States), "states")
				b.ReportMetric(r.Plan.Predicted.Simulated, "iteration-s")
			}
		})
	}
}
