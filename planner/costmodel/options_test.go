package costmodel

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/internal/badinput"
	"evenkeel/planner/layerprofile"
	"evenkeel/planner/search"
)

func TestBadOptions(t *testing.T) {
	p := handProfile()
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	top := handTopology(t, "1000000000B")
	batch := []int{8}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no global batch"},
		{Options{GlobalBatches: []int{8, 0}}, "global batch 0"},
		{Options{GlobalBatches: []int{1 << 40}}, "global batch"},
		{Options{GlobalBatches: batch, MicroBatches: []int{0}}, "micro-batch 0"},
		{Options{GlobalBatches: batch, Replicas: []int{-1}}, "replicas -1"},
		{Options{GlobalBatches: batch, LeastStages: 3, MostStages: 2}, "at most 2 stages, but at least 3"},
		{Options{GlobalBatches: batch, LeastStages: 4}, "at least 4 stages, but the model has 3 layers"},
		{Options{GlobalBatches: batch, Memory: 1.5}, "memory share 1.5"},
		{Options{GlobalBatches: batch, Memory: -1}, "memory share -1"},
		{Options{GlobalBatches: batch, Reserve: -1}, "reserve -1"},
		{Options{GlobalBatches: batch, Reserve: math.Inf(1)}, "reserve +Inf"},
		{Options{GlobalBatches: batch, Reserve: math.NaN()}, "reserve NaN"},
		{Options{GlobalBatches: batch, Shardings: []Sharding{Full, "half"}}, `sharding "half"`},
		{Options{GlobalBatches: batch, Checkpoint: "some"}, `checkpoint "some"`},
		{Options{GlobalBatches: batch, States: States{0, 1, 1}}, "states"},
		{Options{GlobalBatches: batch, States: States{1, -1, 1}}, "states"},
		{Options{GlobalBatches: batch, States: States{1, 1, -1}}, "states"},
		{Options{GlobalBatches: batch, Overlap: Overlap{Compute: 0.5, Communication: 2}}, "overlap"},
		{Options{GlobalBatches: batch, Overlap: Overlap{Compute: 2, Communication: 0.5}}, "overlap"},
	} {
		if _, err := New(p, top, c.o); !errors.Is(err, ErrOptions) || !badinput.Is(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
	for _, o := range []Options{
		{GlobalBatches: []int{1}, MicroBatches: []int{1}, Replicas: []int{1}, LeastStages: 3, MostStages: 3, Memory: 1, States: States{1, 0, 0}, Checkpoint: "always"},
		{GlobalBatches: batch, Overlap: Overlap{Compute: 1, Communication: 1}, Checkpoint: "never", Shardings: []Sharding{Optimizer}},
	} {
		if _, err := New(p, top, o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestClusterAgainstProfile(t *testing.T) {
	p := handProfile()
	p.Warnings = []string{"a, tensor 1: odd", "c, tensor 1: odd", "layers are odd"}
	for i := range p.Layers {
		p.Layers[i].Runs = append(p.Layers[i].Runs, layerprofile.Run{Device: "c", Tensor: 3, MicroBatch: 1, Forward: 1})
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	o := Options{GlobalBatches: []int{8}}
	m, err := New(p, handTopology(t, "1000000000B"), o)
	if err != nil {
		t.Fatal(err)
	}
	// Warnings about devices that the cluster does not have are left out.
	if got := strings.Join(m.Warnings(), "; "); got != "a, tensor 1: odd; layers are odd" {
		t.Error(got)
	}
	if m.LargestMicroBatch() != 8 {
		t.Errorf("largest micro-batch %d", m.LargestMicroBatch())
	}
	for device, want := range map[string]string{"c": "profiled at tensor degrees [3]; none divides the 4 devices", "d": "does not have it; it has [a b c]"} {
		_, err := New(p, handTopology(t, "1000000000B", "device: a", "device: "+device), o)
		if !errors.Is(err, layerprofile.ErrProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", device, err)
		}
	}
	// The largest layer has 400 thousand parameters. At tensor degree 2, fully sharded, 2 x 200 kB of weights must be whole.
	// Replicated, its 5 + 12/8 bytes for each parameter: four replicas and four devices of the other kind share the optimizer's states.
	for _, c := range []struct {
		memory    string
		shardings []Sharding
		fits      bool
	}{{"400000B", nil, true}, {"399000B", nil, false}, {"1300000B", []Sharding{Optimizer}, true}, {"1299000B", []Sharding{Optimizer}, false}} {
		_, err := New(p, handTopology(t, c.memory), Options{GlobalBatches: []int{8}, Shardings: c.shardings, States: States{2, 3, 12}})
		if (err == nil) != c.fits || err != nil && (!errors.Is(err, search.ErrInfeasible) || !strings.Contains(err.Error(), "layer 2 (layer2) is larger than every device; nearest is a at tensor degree 2")) {
			t.Errorf("%s, %v: %v", c.memory, c.shardings, err)
		}
	}
	if _, err := New(p, handTopology(t, "400000B"), Options{GlobalBatches: []int{8}, States: States{2, 3, 12}, Reserve: 1e3}); !errors.Is(err, search.ErrInfeasible) {
		t.Errorf("with a reserve: %v", err)
	}
	for b, want := range map[float64]string{1 << 20: "1 MiB", 1<<30 - 1<<20: "1.02e+03 MiB", 1 << 30: "1.00 GiB", 5 << 29: "2.50 GiB"} {
		if got := Bytes(b); got != want {
			t.Errorf("%v bytes are %s", b, got)
		}
	}
}

func TestBadCalibrations(t *testing.T) {
	for want, c := range map[string]Calibration{
		"links -1": {Links: -1}, "activations +Inf": {Activations: math.Inf(1)}, "working NaN": {Working: math.NaN()}, "compute of a 0": {Compute: map[string]float64{"a": 0}},
		"context -1": {Context: -1}, "context share 1": {ContextShare: 1}, "margin NaN": {Margin: math.NaN()},
	} {
		_, err := New(handProfile(), handTopology(t, "1GB"), Options{GlobalBatches: []int{8}, Calibration: c})
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, again := handModel(t, Options{GlobalBatches: []int{8}}).Calibrated(c); !errors.Is(again, ErrOptions) {
			t.Errorf("%s: %v", want, again)
		}
	}
}

// By hand: 10 parameters of 16 bytes, 12 of them the optimizer's. One a alone would need 160 bytes, and three b 80 each; with all four, 70.
func TestLayerThatAMixedStageHolds(t *testing.T) {
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes:\n  - {device: a, count: 1, memory: 72}\n  - {device: b, count: 3, memory: 72}\n"), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{Layers: []layerprofile.Layer{{Name: "only", Parameters: 10}}}
	for _, d := range []string{"a", "b"} {
		p.Layers[0].Runs = append(p.Layers[0].Runs, layerprofile.Run{Device: d, Tensor: 1, MicroBatch: 1, Forward: 1, Backward: 1})
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, top, Options{GlobalBatches: []int{4}, Shardings: []Sharding{Optimizer}, States: BF16})
	if err != nil {
		t.Fatal(err)
	}
	both := []Group{{Class: 0, Replicas: 1, Tensor: 1, Shares: []int{1}}, {Class: 1, Replicas: 3, Tensor: 1, Shares: []int{1, 1, 1}}}
	x, err := m.Price(4, 4, []Stage{{To: 1, Groups: both, Strategies: []Strategy{{Sharding: Optimizer}}}})
	if err != nil || x.Stages[0].Step() != 2 || x.Stages[0].Memory[0].Peak() > 72 || x.Stages[0].Memory[1].Peak() > 72 {
		t.Errorf("%+v, %v; want a stage of all four devices, which fits and takes a forward and a backward pass of 1 s", x, err)
	}
}
