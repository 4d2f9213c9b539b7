package peerprofile

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// write puts files into a new folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	sailorProfile = `{"1":{"1":{"0":[1,2,0.5],"1":[3,4,0.5]},"2":{"0":[0.6,1,0.3],"1":[2,2.5,0.3]}}}`
	sailorSizes   = `{"m":{"1":{"0":{"params_floats":10,"act_mem_bytes":7,"act_output_bytes":4},"1":{"params_floats":20,"act_mem_bytes":8,"act_output_bytes":4}},
	  "2":{"0":{"params_floats":5,"act_mem_bytes":6,"act_output_bytes":4},"1":{"params_floats":10,"act_mem_bytes":5,"act_output_bytes":4}}}}`
	metis1 = `{"model":{"model_name":"gpt","num_layers":2,"parameters":{"parameters_per_layer_bytes":[400,800]}},"execution_time":{"optimizer_time_ms":4,"layer_compute_total_ms":[3,6]},"execution_memory":{"layer_memory_total_mb":[10,20]}}`
	metis2 = `{"model":{"model_name":"gpt","num_layers":2,"parameters":{"parameters_per_layer_bytes":[400,800]}},"execution_time":{"optimizer_time_ms":4,"layer_compute_total_ms":[5,9]},"execution_memory":{"layer_memory_total_mb":[12,26]}}`
	piper  = `{"mbsInBatch":8,"nodes":[
	  {"id":2,"name":"b","TMPCs":{"1":[{"id":"vanilla","timePerSample":3,"parameterSize":8,"memoryUsageA":5}]}},
	  {"id":1,"name":"a","TMPCs":{"1":[{"id":"vanilla","timePerSample":6,"parameterSize":4,"memoryUsageA":5}]}},
	  {"id":3,"name":"c","TMPCs":{"1":[{"id":"vanilla","timePerSample":0,"parameterSize":0,"memoryUsageA":5}]}}],
	  "edges":[{"sourceId":1,"destId":2,"communicationCost":100},{"sourceId":1,"destId":3,"communicationCost":100},{"sourceId":2,"destId":3,"communicationCost":7}]}`
	galvatronTimes = `{"layernum[2]_bsz1_seq64":10,"layernum[4]_bsz1_seq64":16,"layernum[2]_bsz2_seq64":18,"layernum[4]_bsz2_seq64":30}`
	galvatronHolds = `{"1_1_2_sp":{"layernum[1]_bsz2_seq64_rank0_ms":20,"layernum[2]_bsz2_seq64_rank0_ms":28,"layernum[1]_bsz2_seq64_rank0_act":5,"layernum[2]_bsz2_seq64_rank0_act":9},"other":[1]}`
)

func TestSailor(t *testing.T) {
	dir := write(t, map[string]string{"p/x/profile.json": sailorProfile, "info.json": sailorSizes, "p/readme": ""})
	p, err := Sailor(dir+"/p", dir+"/info.json", "m")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Layers) != 2 || p.Layers[1].Parameters != 20 || len(p.Layers[0].Runs) != 2 ||
		p.Layers[0].Runs[1] != (layerprofile.Run{Device: "x", Tensor: 2, MicroBatch: 1, Forward: 0.6, Backward: 1, Update: 0.3, Activation: 6}) {
		t.Fatalf("%+v", p)
	}
}

func TestMetis(t *testing.T) {
	dir := write(t, map[string]string{"DeviceType.A100_tp1_bs1.json": metis1, "DeviceType.A100_tp1_bs2.json": metis2, "other.json": "{"})
	p, err := Metis(dir, MetisSizes{Output: 64})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Layers[1].Runs[1]
	if p.Model != "gpt" || p.Layers[1].Parameters != 200 || math.Abs(r.Forward-3e-3) > 1e-12 || math.Abs(r.Backward-6e-3) > 1e-12 || r.Update != 2e-3 ||
		p.Layers[1].Runs[0].Activation != 6<<20 {
		t.Fatalf("%+v", p)
	}
}

func TestPiper(t *testing.T) {
	dir := write(t, map[string]string{"in.json": piper})
	p, err := Piper(dir+"/in.json", "v")
	if err != nil {
		t.Fatal(err)
	}
	// a, b, c; a gives to b and c, so its 100 bytes pass the second boundary too.
	if p.Layers[0].Name != "a1" || p.Layers[1].Name != "b2" || p.Layers[0].Output != 100 || p.Layers[1].Output != 107 || p.Layers[2].Output != 0 ||
		p.Layers[0].Parameters != 1 || p.Layers[0].Runs[1].Forward != 16 || p.Layers[0].Runs[0].Activation != 5 || p.Layers[0].Runs[1].Activation != 5 {
		t.Fatalf("%+v", p)
	}
}

func TestGalvatron(t *testing.T) {
	dir := write(t, map[string]string{"t.json": galvatronTimes, "m.json": galvatronHolds})
	p, err := Galvatron(dir+"/t.json", dir+"/m.json", GalvatronSizes{Device: "g", Layers: 3, Output: 9})
	if err != nil {
		t.Fatal(err)
	}
	block, ends := p.Layers[0], p.Layers[3]
	if len(p.Layers) != 4 || block.Runs[0].Forward != 3e-3 || block.Runs[1].Forward != 6e-3 || block.Parameters != 16<<20/16 || block.Runs[0].Activation != 4<<20 ||
		math.Abs(ends.Runs[0].Forward-4e-3) > 1e-12 || ends.Parameters != 24<<20/16 || block.Runs[1].Activation != 4<<20 || ends.Runs[0].Activation != 1<<20 {
		t.Fatalf("%+v", p)
	}
}

func TestBadProfiles(t *testing.T) {
	dir := write(t, map[string]string{
		"gap/x/profile.json": `{"1":{"1":{"0":[1,2,0.5],"2":[3,4,0.5]}}}`, "info.json": sailorSizes,
		"empty/none": "", "short/x/profile.json": `{"1":{"1":{"0":[1,2],"1":[1,2,3]}}}`, "more/x/profile.json": `{} {}`,
		"missing/x/profile.json":                `{"1":{"1":{"0":[1,2,0.5]}}}`,
		"short-metis/DeviceType.A_tp1_bs1.json": strings.Replace(metis1, `"optimizer_time_ms":4`, `"forward_backward_time_ms":8`, 1),
		"metis/DeviceType.A_tp1_bs1.json":       `{"execution_time":{"layer_compute_total_ms":[3]}}`,
		"circle.json":                           `{"nodes":[{"id":1,"TMPCs":{}},{"id":2,"TMPCs":{}}],"edges":[{"sourceId":1,"destId":2},{"sourceId":2,"destId":1}]}`,
		"edge.json":                             `{"nodes":[{"id":1}],"edges":[{"sourceId":1,"destId":9}]}`,
		"twice.json":                            `{"nodes":[{"id":1},{"id":1}]}`,
		"t.json":                                `{"time":1}`, "one.json": `{"layernum[2]_bsz1_seq64":10}`, "m.json": galvatronHolds,
	})
	_, sailorGap := Sailor(dir+"/gap", dir+"/info.json", "m")
	_, sailorNone := Sailor(dir+"/empty", dir+"/info.json", "m")
	_, sailorShort := Sailor(dir+"/short", dir+"/info.json", "m")
	_, sailorMore := Sailor(dir+"/more", dir+"/info.json", "m")
	_, sailorMissing := Sailor(dir+"/missing", dir+"/info.json", "m")
	_, metisShort := Metis(dir+"/short-metis", MetisSizes{})
	_, metisNone := Metis(dir+"/empty", MetisSizes{})
	_, metisGap := Metis(dir+"/metis", MetisSizes{})
	_, circle := Piper(dir+"/circle.json", "x")
	_, edge := Piper(dir+"/edge.json", "x")
	_, twice := Piper(dir+"/twice.json", "x")
	_, key := Galvatron(dir+"/t.json", dir+"/m.json", GalvatronSizes{})
	_, one := Galvatron(dir+"/one.json", dir+"/m.json", GalvatronSizes{})
	for want, err := range map[string]error{
		"layer 1 is missing": sailorGap, "no DEVICE/profile.json": sailorNone, "has not three times": sailorShort,
		"has times of 1 layers, but": sailorMissing, "forward_backward_time_ms is 8, but the layers' times sum to 9": metisShort, "more follows": sailorMore,
		"no DeviceType": metisNone, "layer_memory_total_mb 0": metisGap, "in a circle": circle, "no such node": edge, "given twice": twice,
		`"time": want layernum`: key, "two numbers of layers": one,
	} {
		if !errors.Is(err, layerprofile.ErrProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzReaders(f *testing.F) {
	for _, s := range []string{sailorProfile, metis1, piper, galvatronTimes} {
		f.Add(s, sailorSizes)
		f.Add(s, galvatronHolds)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		dir := write(t, map[string]string{"p/x/profile.json": a, "b.json": b, "DeviceType.A_tp1_bs1.json": a})
		for _, read := range []func() (*layerprofile.Profile, error){
			func() (*layerprofile.Profile, error) { return Sailor(dir+"/p", dir+"/b.json", "m") },
			func() (*layerprofile.Profile, error) { return Metis(dir, MetisSizes{Output: 1}) },
			func() (*layerprofile.Profile, error) { return Piper(dir+"/p/x/profile.json", "x") },
			func() (*layerprofile.Profile, error) {
				return Galvatron(dir+"/p/x/profile.json", dir+"/b.json", GalvatronSizes{Device: "x", Layers: 2, Output: 1})
			},
		} {
			if p, err := read(); err == nil && len(p.Layers) == 0 {
				t.Fatal("no layers and no error")
			}
		}
	})
}
