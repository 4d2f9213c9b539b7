package peerprofile_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/planner"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/peerprofile"
)

// A profile of Metis end to end: a plan takes the time and the memory that the profile's own numbers sum to. Three layers; memory is
// 16 bytes for each of 262144, 524288 and 262144 parameters (4, 8 and 4 MB), 50, 100 and 30 MB besides, and 10, 20 and 5 MB a sample.
func TestMetisEndToEnd(t *testing.T) {
	dir := t.TempDir()
	type measurement struct {
		batch, whole, layers, memory float64
	}
	all := []measurement{}
	for _, m := range []struct {
		batch  int
		whole  float64
		layers [3]float64
	}{{1, 14, [3]float64{2, 6, 3}}, {2, 24, [3]float64{4, 11, 5}}, {16, 170, [3]float64{30, 80, 35}}} {
		b := float64(m.batch)
		memory := [3]float64{4 + 50 + 10*b, 8 + 100 + 20*b, 4 + 30 + 5*b}
		text := fmt.Sprintf(`{"model":{"model_name":"gpt","parameters":{"parameters_per_layer_bytes":[1048576,2097152,1048576]}},
 "execution_time":{"total_time_ms":%v,"forward_backward_time_ms":%v,"batch_generator_time_ms":1,"layernorm_grads_all_reduce_time_ms":0.5,"embedding_grads_all_reduce_time_ms":0.25,"optimizer_time_ms":9,"layer_compute_total_ms":[%v,%v,%v]},
 "execution_memory":{"layer_memory_total_mb":[%v,%v,%v]}}`, m.whole+9.75, m.whole, m.layers[0], m.layers[1], m.layers[2], memory[0], memory[1], memory[2])
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("DeviceType.A100_tp1_bs%d.json", m.batch)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, measurement{b, m.whole, m.layers[0] + m.layers[1] + m.layers[2], memory[0] + memory[1] + memory[2]})
	}
	p, err := peerprofile.Metis(dir, peerprofile.MetisSizes{Output: 1})
	if err != nil || len(p.Warnings) > 0 {
		t.Fatal(err, p.Warnings)
	}
	if fixed := p.Layers[1].Runs[1].Fixed; math.Abs(fixed-100*1048576) > 1 {
		t.Errorf("fixed %v, want 100 MB", fixed)
	}
	topology, err := clusterfile.ReadTopology(strings.NewReader("nodes: [{device: A100, count: 2, memory: 1GiB, link: 1000GB/s}]"), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for _, precision := range []costmodel.States{costmodel.Mixed, costmodel.Full32} {
		for _, m := range all {
			job, err := planner.NewJob(p, topology, planner.Options{GlobalBatches: []int{int(5 * m.batch)}, States: precision, Overlap: costmodel.Overlap{Off: true}})
			if err != nil {
				t.Fatal(err)
			}
			plan := &planner.Plan{Version: planner.Version, GlobalBatch: int(5 * m.batch), MicroBatch: int(m.batch), Stages: []planner.Stage{{To: 3,
				Groups:     []planner.Group{{Devices: planner.Devices{Device: "A100", Count: 1}, Tensor: 1, MicroBatches: []int{int(m.batch)}}},
				Strategies: []planner.Strategy{{To: 3, Sharding: planner.Replicated}}}}}
			got, err := job.Predict(plan)
			if err != nil {
				t.Fatal(err)
			}
			// Five micro-batches, and once the optimizer and the two reductions.
			near(fmt.Sprintf("seconds at %v", m.batch), got.Simulated, (5*m.whole+9.75)/1e3)
			u := got.Stages[0].Memory[0]
			near(fmt.Sprintf("memory at %v", m.batch), u.States+u.Activations, m.memory*1048576)
		}
	}
	// A search that has the memory by the profile's own numbers finds a plan, one that has not does not.
	need := (all[0].memory - 10) * 1048576
	for memory, fits := range map[float64]bool{need: false, need + 11*1048576: true} {
		tight, err := clusterfile.ReadTopology(strings.NewReader(fmt.Sprintf("nodes: [{device: A100, memory: %.0f, link: 1000GB/s}]", memory)), "t", nil)
		if err != nil {
			t.Fatal(err)
		}
		job, err := planner.NewJob(p, tight, planner.Options{GlobalBatches: []int{1}, Checkpoint: "never"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Search(t.Context(), planner.SearchOptions{}); (err == nil) != fits {
			t.Errorf("%v bytes: %v", memory, err)
		}
	}
}

// Of one batch size nothing says what grows; without the whole step's time there is a warning.
func TestMetisOneBatch(t *testing.T) {
	dir := t.TempDir()
	const text = `{"model":{"parameters":{"parameters_per_layer_bytes":[1048576]}},"execution_time":{"optimizer_time_ms":1,"layer_compute_total_ms":[8]},"execution_memory":{"layer_memory_total_mb":[44]}}`
	if err := os.WriteFile(filepath.Join(dir, "DeviceType.A100_tp2_bs4.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := peerprofile.Metis(dir, peerprofile.MetisSizes{Output: 1})
	if err != nil {
		t.Fatal(err)
	}
	// 44 MB, less 16 x 262144 / 2 bytes, over 4 samples.
	if r := p.Layers[0].Runs[0]; r.Activation != 10.5*1048576 || r.Fixed != 0 {
		t.Errorf("%+v", r)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "no forward_backward_time_ms") {
		t.Error(p.Warnings)
	}
}
