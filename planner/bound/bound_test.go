package bound_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/bound"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/layerprofile"
)

// handModel has layers of so many seconds forward and back for a sample on device a, at degree 1 and a little more than half at 2;
// b takes twice as long. Nothing but the times counts.
func handModel(t *testing.T, nodes string, batch int, o costmodel.Options, seconds ...float64) *costmodel.Model {
	t.Helper()
	top, err := clusterfile.ReadTopology(strings.NewReader(nodes), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{Model: "hand"}
	for _, s := range seconds {
		l := layerprofile.Layer{Parameters: 1, Output: 1}
		for d, slow := range map[string]float64{"a": 1, "b": 2} {
			for _, n := range []int{1, 16} {
				l.Runs = append(l.Runs, layerprofile.Run{Device: d, Tensor: 1, MicroBatch: n, Forward: s * slow * float64(n) / 4, Backward: 3 * s * slow * float64(n) / 4},
					layerprofile.Run{Device: d, Tensor: 2, MicroBatch: n, Forward: 0.6 * s * slow * float64(n) / 4, Backward: 1.8 * s * slow * float64(n) / 4})
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	o.GlobalBatches = []int{batch}
	m, err := costmodel.New(p, top, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	twoOfA   = "nodes:\n  - {device: a, count: 2, memory: 1GiB, link: {bandwidth: 1GB/s}}\n"
	threeOfA = "nodes:\n  - {device: a, count: 3, memory: 1GiB, link: {bandwidth: 1GB/s}}\n"
	aAndB    = "nodes:\n  - {device: a, count: 1, memory: 1GiB}\n  - {device: b, count: 1, memory: 1GiB}\n"
)

// Least times by hand, near which the bound must lie.
func TestLowerBoundByHand(t *testing.T) {
	pipeline := costmodel.Options{Tensors: []int{1}, Replicas: []int{1}, MicroBatches: []int{1}, Checkpoint: "never", Shardings: []costmodel.Sharding{costmodel.Replicated}}
	free := costmodel.Options{Checkpoint: "never"}
	for _, c := range []struct {
		name    string
		nodes   string
		options costmodel.Options
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
		m := handModel(t, c.nodes, 8, c.options, c.layers...)
		for i := range m.Layers() {
			m.Layers()[i].Output = c.output
		}
		for _, times := range []float64{1, 3} {
			got := bound.Lower(context.Background(), m, 8, times*c.want*1.001)
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
	o := costmodel.Options{GlobalBatches: []int{8}, Shardings: []costmodel.Sharding{costmodel.Replicated}, Checkpoint: "never", Overlap: costmodel.Overlap{Off: true}, States: costmodel.States{Weights: 1e-9, Gradients: 2}}
	m, err := costmodel.New(p, top.WithMemory(64), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := bound.Lower(context.Background(), m, 8, 12); got < 5.9 || got > 6 {
		t.Errorf("%v, by hand 6", got)
	}
}

// Less memory raises the bound where it forces what takes time: of two layers of 100 MB a sample one is recomputed, a quarter of a second
// for each of 8 samples.
func TestLowerBoundCountsMemory(t *testing.T) {
	limit := func(memory string) float64 {
		m := handModel(t, "nodes:\n  - {device: a, count: 1, memory: "+memory+"}\n", 8, costmodel.Options{}, 1, 1)
		for i := range m.Layers() {
			for k := range m.Layers()[i].Runs {
				m.Layers()[i].Runs[k].Activation = 100e6
			}
		}
		return bound.Lower(context.Background(), m, 8, 20)
	}
	if roomy, tight := limit("64GiB"), limit("101MB"); roomy < 15.9 || roomy > 16 || tight < 17 || tight > 18 {
		t.Errorf("with memory %v, by hand 16; with little %v, by hand 18", roomy, tight)
	}
}

// Two devices share 4 samples of two layers. Shares of 2 do not fit into memory. Shares of 3 and 1 do, because recomputation
// frees nearly all activations of a share of 3. That plan takes 6 s; the bound must not be above it, whatever time is known.
func TestLowerBoundOfUnequalShares(t *testing.T) {
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes:\n  - {device: a, count: 2, per_machine: 2, memory: 350MB}\n"), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	run := layerprofile.Run{Device: "a", Tensor: 1, MicroBatch: 2, Forward: 1, Backward: 2, Activation: 100e6}
	more := run
	more.MicroBatch, more.Freed = 3, 99e6
	p := &layerprofile.Profile{Model: "hand", Layers: slices.Repeat([]layerprofile.Layer{{Parameters: 1, Output: 1, Runs: []layerprofile.Run{run, more}}}, 2)}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := costmodel.New(p, top, costmodel.Options{GlobalBatches: []int{4}, MostStages: 1, Checkpoint: "selective"})
	if err != nil {
		t.Fatal(err)
	}
	stage := costmodel.Stage{To: 2, Groups: []costmodel.Group{{Replicas: 2, Tensor: 1, Shares: []int{3, 1}}},
		Strategies: slices.Repeat([]costmodel.Strategy{{Sharding: costmodel.Replicated, Selective: true}}, 2)}
	cost, err := m.Price(4, 4, []costmodel.Stage{stage})
	if err != nil {
		t.Fatal(err)
	}
	if u := cost.Stages[0].Memory[0]; u.Peak() > u.Limit {
		t.Fatalf("%v bytes of %v", u.Peak(), u.Limit)
	}
	if got := bound.Lower(context.Background(), m, 4, 10*cost.Seconds); got > cost.Seconds || got < 5.9 {
		t.Errorf("%v; a plan takes %v", got, cost.Seconds)
	}
}

// By hand: of 4 and 2 s a sample, and 1 s of a's time for the update of each, on one a and one b. Computing takes 24 s of a's
// time for 4 samples, updates 2 s; b is worth half of a. Where b is slower at one layer alone, it takes the other.
func TestWork(t *testing.T) {
	top := "nodes:\n  - {device: a, count: 1, memory: 1GiB}\n  - {device: b, count: 1, memory: 1GiB, slowdown: 1.5}\n"
	m := handModel(t, top, 4, costmodel.Options{}, 4, 2)
	// b takes 2 x 1.5 = 3 times as long: 24 / (1 + 1/3).
	if got := bound.Work(m, 4); math.Abs(got-18) > 1e-6 {
		t.Errorf("%v, want 18", got)
	}
	for i := range m.Layers() {
		for k := range m.Layers()[i].Runs {
			r := &m.Layers()[i].Runs[k]
			r.Update = 1
			if r.Device == "b" && i == 1 { // 2/3 s a sample, with the slowdown 1 s
				r.Forward, r.Backward = float64(r.MicroBatch)/6, float64(r.MicroBatch)/2
			}
		}
	}
	// a: layer 0 costs 16, layer 1 8, updates 1 and 1. b: 48, 4, 1.5 and 1.5. b takes layer 1 and both updates, 7, and x of layer
	// 0: 16 (1 - x) = 7 + 48 x, x = 9/64: 13.75.
	if got := bound.Work(m, 4); math.Abs(got-13.75) > 1e-6 {
		t.Errorf("%v, want 13.75", got)
	}
}

// Where layers share parameters, plans of one stage take less than with a layer of its own. The bound of plans of any number of stages is no larger
// than that of plans of one.
func TestTied(t *testing.T) {
	var bounds [2]float64
	for i, most := range []int{0, 1} {
		m := handModel(t, twoOfA, 8, costmodel.Options{}, 1, 1)
		p := &layerprofile.Profile{Model: "tied", Layers: m.Layers()}
		for l := range p.Layers {
			p.Layers[l].Parameters = 1e6
		}
		p.Layers[1].Tied = 1e6
		if err := p.Finish("tied"); err != nil {
			t.Fatal(err)
		}
		top, err := clusterfile.ReadTopology(strings.NewReader(twoOfA), "hand", nil)
		if err != nil {
			t.Fatal(err)
		}
		tied, err := costmodel.New(p, top, costmodel.Options{GlobalBatches: []int{8}, MostStages: most})
		if err != nil {
			t.Fatal(err)
		}
		bounds[i] = bound.Lower(context.Background(), tied, 8, 1e3)
		if w := bound.Work(tied, 8); w > bounds[i] || math.IsInf(w, 1) {
			t.Errorf("at most %d stages: %v by work, %v", most, w, bounds[i])
		}
	}
	if bounds[0] > bounds[1] || bounds[1] == 0 {
		t.Errorf("bounds %v", bounds)
	}
}
