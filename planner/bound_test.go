package planner

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/planner/bound"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

const (
	twoOfA   = "nodes:\n  - {device: a, count: 2, memory: 1GiB, link: {bandwidth: 1GB/s}}\n"
	threeOfA = "nodes:\n  - {device: a, count: 3, memory: 1GiB, link: {bandwidth: 1GB/s}}\n"
	aAndB    = "nodes:\n  - {device: a, count: 1, memory: 1GiB}\n  - {device: b, count: 1, memory: 1GiB}\n"
)

// Least times by hand, near which the bound must lie.
func TestLowerBoundByHand(t *testing.T) {
	pipeline := Options{Tensors: []int{1}, Replicas: []int{1}, MicroBatches: []int{1}, Checkpoint: "never", Shardings: []Sharding{Replicated}}
	free := Options{Checkpoint: "never"}
	for _, c := range []struct {
		name    string
		nodes   string
		options Options
		layers  []float64
		output  float64 // bytes of a sample
		want    float64 // seconds of 8 samples
	}{
		// 8 micro-batches of 1 s through two stages.
		{"the way through a pipeline", twoOfA, pipeline, []float64{1, 1}, 1, 9},
		// Cut after the first layer or the second: 4 and 5, or 7 and 2 seconds; 8 steps of 5 and one of 4.
		{"layers in one piece", twoOfA, pipeline, []float64{4, 3, 2}, 1, 8*5 + 4},
		// Half a second each way: the first stage is busy for 4 + 1 seconds of each micro-batch, and the second takes 4 more.
		{"sending", twoOfA, pipeline, []float64{4, 4}, 5e8, 8*5 + 4},
		// The second of three stages is busy for 4 s and 1 s each way of both its borders. It begins after 1 s and the first ends 3 s after it;
		// between its first passes it waits for the last stage, 4 s, with a forward pass of 2 s to do.
		{"receiving", threeOfA, pipeline, []float64{4, 4, 4}, 5e8, 8*6 + 4 + 2},
		// a takes a sample in 3 s, b in 6: shares of a micro-batch of 3 as 2 and 1 would take 6 s, but 8 has no divisor 3, so that one
		// of 8 samples is cut into 5 and 3: 18 s. Two stages of 2 and 1 s take 8 steps of 2 and one of 2.
		{"devices of unlike speed", aAndB, free, []float64{2, 1}, 1, 8*2 + 2},
	} {
		j := handJob(t, c.nodes, 8, c.options, c.layers...)
		for i := range j.Profile.Layers {
			j.Profile.Layers[i].Output = c.output
		}
		for _, times := range []float64{1, 3} {
			got := bound.Lower(context.Background(), j.model, 8, times*c.want*1.001)
			if got > c.want*(1+1e-9) || got < 0.97*c.want {
				t.Errorf("%s, where %v times as long is known: %v, by hand %v", c.name, times, got, c.want)
			}
		}
	}
}

// What is exchanged once counts. One layer of 1 s a sample on two devices in machines of their own, 8 samples: 4 s each, and 2 GB of
// gradients to and fro, half of them each time at 1 GB/s: 2 s.
func TestLowerBoundCountsExchange(t *testing.T) {
	top, err := clusterfile.ReadTopology(strings.NewReader(twoOfA), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{Model: "hand", Layers: []layerprofile.Layer{{Parameters: 1e9, Output: 1}}}
	for _, n := range []int{1, 8} {
		p.Layers[0].Runs = append(p.Layers[0].Runs, layerprofile.Run{Device: "a", Tensor: 1, MicroBatch: n, Forward: float64(n) / 4, Backward: 3 * float64(n) / 4})
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	o := Options{GlobalBatches: []int{8}, Shardings: []Sharding{Replicated}, Checkpoint: "never", Overlap: costmodel.Overlap{Off: true}, States: costmodel.States{Weights: 1e-9, Gradients: 2}}
	j, err := NewJob(p, top.WithMemory(64), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := bound.Lower(context.Background(), j.model, 8, 12); got < 5.9 || got > 6 {
		t.Errorf("%v, by hand 6", got)
	}
}

// Less memory raises the bound where it forces what takes time: of two layers of 100 MB a sample one is recomputed, a quarter of a second
// for each of 8 samples.
func TestLowerBoundCountsMemory(t *testing.T) {
	limit := func(memory string) float64 {
		j := handJob(t, "nodes:\n  - {device: a, count: 1, memory: "+memory+"}\n", 8, Options{}, 1, 1)
		for i := range j.Profile.Layers {
			for k := range j.Profile.Layers[i].Runs {
				j.Profile.Layers[i].Runs[k].Activation = 100e6
			}
		}
		return bound.Lower(context.Background(), j.model, 8, 20)
	}
	if roomy, tight := limit("64GiB"), limit("101MB"); roomy < 15.9 || roomy > 16 || tight < 17 || tight > 18 {
		t.Errorf("with memory %v, by hand 16; with little %v, by hand 18", roomy, tight)
	}
}

// Where memory is short, what is recomputed in part costs the bound no more than that takes: both layers of 100 MB a sample, of which 60 MB
// are freed for a hundredth of a second, fit in 150 MB, and 8 samples take 16.16 s.
func TestLowerBoundCountsSelective(t *testing.T) {
	j := handJob(t, "nodes:\n  - {device: a, count: 1, memory: 150MB}\n", 8, Options{}, 1, 1)
	for i := range j.Profile.Layers {
		for k := range j.Profile.Layers[i].Runs {
			r := &j.Profile.Layers[i].Runs[k]
			r.Activation, r.Freed, r.Selective = 100e6, 60e6, 0.01*float64(r.MicroBatch)
		}
	}
	j, err := NewJob(j.Profile, j.topology, j.options)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), SearchOptions{})
	if err != nil || math.Abs(r.Plan.Predicted.Simulated-16.16) > 1e-6 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := bound.Lower(context.Background(), j.model, 8, 20); got < 16-1e-6 || got > 16.16 {
		t.Errorf("%v, by hand 16 to 16.16", got)
	}
}
