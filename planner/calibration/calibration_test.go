package calibration

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/planner"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/layerprofile"
)

// Two layers alike, each with 10 million parameters, 1 MB of output and 100 MB of activations a sample. For n samples a layer takes 1 n
// seconds forward and 2 n backward on big, twice that on little; the update 0.5 s on big, 1 s on little.
const layers = `layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,backward_seconds,update_seconds,activation_bytes
0-1,10000000,1000000,big,1,1,1,2,0.5,100000000
0-1,10000000,1000000,big,1,8,8,16,0.5,100000000
0-1,10000000,1000000,little,1,1,2,4,1,100000000
0-1,10000000,1000000,little,1,8,16,32,1,100000000
`

// A message of 1 MB takes 1 s over one link, 1.5 s over both.
const nodes = `nodes:
  - {device: big, count: 2, memory: 20GB, link: {bandwidth: 2MB/s, latency: 500ms}}
  - {device: little, count: 2, memory: 20GB, link: {bandwidth: 1MB/s, latency: 0s}}
`

// plan is one of so many micro-batches of n samples, a stage for each device.
func plan(micro, n int, devices ...string) *planner.Plan {
	p := &planner.Plan{Version: planner.Version, Model: "m", GlobalBatch: micro * n, MicroBatch: n}
	each := 2 / len(devices)
	for i, d := range devices {
		p.Stages = append(p.Stages, planner.Stage{From: i * each, To: (i + 1) * each, Groups: []planner.Group{{Devices: planner.Devices{Device: d, Count: 1}, Tensor: 1, MicroBatches: []int{n}}},
			Strategies: []planner.Strategy{{From: i * each, To: (i + 1) * each, Sharding: planner.Replicated}}})
	}
	return p
}

type row struct {
	plan           *planner.Plan
	seconds, bytes float64
}

// files writes measured plans with what they name, and returns the path of the list.
func files(t *testing.T, rows ...row) string {
	t.Helper()
	dir := t.TempDir()
	text := "plan,cluster,seconds,peak_bytes\n"
	for i, r := range rows {
		name := fmt.Sprintf("%d.json", i)
		if err := planner.WritePlan(filepath.Join(dir, name), r.plan); err != nil {
			t.Fatal(err)
		}
		peak := ""
		if r.bytes > 0 {
			peak = fmt.Sprint(r.bytes)
		}
		text += fmt.Sprintf("%s,nodes.yaml,%v,%s\n", name, r.seconds, peak)
	}
	write(t, filepath.Join(dir, "nodes.yaml"), nodes)
	write(t, filepath.Join(dir, "measured.csv"), text)
	return filepath.Join(dir, "measured.csv")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(path string) ([]Measured, error) {
	p, err := layerprofile.Read(strings.NewReader(layers), "m.csv")
	if err != nil {
		return nil, err
	}
	return Load(path, p, nil, planner.Options{Overlap: costmodel.Overlap{Off: true}})
}

func fit(t *testing.T, rows ...row) (*File, error) {
	t.Helper()
	m, err := load(files(t, rows...))
	if err != nil {
		t.Fatal(err)
	}
	return New(m, "mixed", "off")
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got/want-1) > within {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// One plan on a node of each type tells each device's factor, and a plan over both the links', whatever they are.
func TestTimes(t *testing.T) {
	const big, little, links = 1.3, 0.7, 2.5
	f, err := fit(t,
		// 4 micro-batches of 1 sample: two layers of 3 s, and two updates of 0.5 s.
		row{plan(4, 1, "big"), big * (4*6 + 1), 0},
		row{plan(2, 2, "little"), little * (2*24 + 2), 0},
		// One micro-batch there and back: 3 s, 6 s, two messages of 1.5 s, and the update of the stage that ends last.
		row{plan(1, 1, "big", "little"), big*3 + little*6 + links*3 + big*0.5, 0})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "big", f.Devices["big"], big, 0.01)
	near(t, "little", f.Devices["little"], little, 0.01)
	near(t, "links", f.Links, links, 0.02)
	if f.Context != 0 || f.Activations != 0 || f.Margin != 0 {
		t.Errorf("memory was not measured: %+v", f)
	}
	near(t, "predicted", f.Plans[2].PredictedSeconds, f.Plans[2].Seconds, 0.01)
}

// A plan over both devices does not tell them apart: they share a factor, and links stay where nothing is sent.
func TestOneFactor(t *testing.T) {
	f, err := fit(t, row{plan(1, 1, "big"), 1.2 * 7, 0})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "big", f.Devices["big"], 1.2, 0.001)
	near(t, "links", f.Links, 1, 1e-9)
	f, err = fit(t, row{plan(1, 1, "big", "little"), 1.2*9.5 + 3, 0}, row{plan(8, 1, "big", "little"), 100, 0})
	if err != nil {
		t.Fatal(err)
	}
	if f.Devices["big"] != f.Devices["little"] {
		t.Errorf("%v: want one factor", f.Devices)
	}
}

// A plan on big alone and one over both tell little's factor from big's.
func TestOneAlone(t *testing.T) {
	const big, little = 1.4, 0.75
	f, err := fit(t, row{plan(1, 1, "big"), big * 7, 0}, row{plan(4, 1, "big"), big * 25, 0},
		row{plan(1, 1, "big", "little"), big*3 + little*6 + 3 + big*0.5, 0}, row{plan(1, 2, "big", "little"), big*6 + little*12 + 2*2.5 + big*0.5, 0})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "big", f.Devices["big"], big, 0.02)
	near(t, "little", f.Devices["little"], little, 0.03)
}

// Memory of a device: 16 bytes of each parameter, activations, buffers of the layer that runs, and what is beside the model.
func TestMemory(t *testing.T) {
	const states, beside, activations = 20e6 * 16, 1.7e9, 1.25
	var rows []row
	for _, n := range []int{1, 2, 4, 8} {
		rows = append(rows, row{plan(1, n, "big"), 6*float64(n) + 1, states + beside + float64(n)*(activations*200e6+2e6)})
	}
	f, err := fit(t, rows...)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "beside", f.Context, beside, 0.03)
	near(t, "activations", f.Activations, activations, 0.02)
	if f.Margin > 0.01 {
		t.Errorf("margin %v, of plans that agree", f.Margin)
	}
	// One that takes more than the others say: so much is kept free.
	rows[0].bytes *= 1.1
	if f, err = fit(t, rows...); err != nil {
		t.Fatal(err)
	}
	near(t, "margin", 1+f.Margin, rows[0].bytes/f.Plans[0].PredictedPeak, 1e-9)
	if f.Margin < 0.02 {
		t.Errorf("margin %v", f.Margin)
	}
}

func TestContradictions(t *testing.T) {
	for want, rows := range map[string][]row{
		"plans contradict each other: line 5, 3.json took 60 s, where the others say 25":    {{plan(1, 1, "big"), 7, 0}, {plan(1, 2, "big"), 13, 0}, {plan(1, 8, "big"), 49, 0}, {plan(2, 2, "big"), 60, 0}},
		"plans contradict each other: line 3, 1.json took 954 MiB, where the others say 5.": {{plan(1, 1, "big"), 7, 5.6e9}, {plan(2, 1, "big"), 13, 1e9}, {plan(3, 1, "big"), 19, 5.6e9}, {plan(4, 1, "big"), 25, 5.6e9}},
	} {
		_, err := fit(t, rows...)
		if !errors.Is(err, errMeasured) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	good := row{plan(1, 4, "big"), 25, 3e9}
	if _, err := fit(t, good, row{good.plan, 28, 3.3e9}); err != nil {
		t.Errorf("runs of one plan that are 12%% apart: %v", err)
	}
	if _, err := fit(t, good, row{good.plan, 50, 3e9}); !errors.Is(err, errMeasured) {
		t.Errorf("runs of one plan, of which one takes twice as long: %v", err)
	}
}

func TestFile(t *testing.T) {
	f, err := fit(t, row{plan(1, 4, "big"), 25, 3e9})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "calibration.json")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, got); d != "" {
		t.Error(d)
	}
	c, err := got.Of([]string{"big"})
	if err != nil || c.Compute["big"] != f.Devices["big"] || c.Links != f.Links || c.Context != f.Context || c.ContextShare != 0 || c.Activations != f.Activations || c.Gradients != 1 || c.Working != f.Working || c.Margin != f.Margin {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := got.Of([]string{"big", "little"}); !errors.Is(err, errFile) || !strings.Contains(err.Error(), "no measured plan used little, which the cluster has; it has [big]") {
		t.Error(err)
	}
	f.Activations, f.Working, f.Context, f.Margin = 0, 0, 0, 0
	if c, err = f.Of([]string{"big"}); err != nil || c.Context != 5e9 || c.ContextShare != 0.25 || c.Activations != 1.1 || c.Gradients != 3 {
		t.Errorf("without measured memory: %+v %v", c, err)
	}
}

func TestBadFiles(t *testing.T) {
	for want, text := range map[string]string{
		"version is 2": `{"version": 2}`, "unknown field": `{"version": 1, "speed": 1}`, "more text": `{"version":1}{}`, "devices is empty": `{"version":1,"links":1}`,
		"devices.a is 0": `{"version":1,"devices":{"a":0},"links":1}`, "devices.a is -1": `{"version":1,"devices":{"a":-1},"links":1}`,
		"links is 0": `{"version":1,"devices":{"a":1}}`, "links is 1e+07": `{"version":1,"devices":{"a":1},"links":1e7}`,
		"activations 0": `{"version":1,"devices":{"a":1},"links":1,"margin":1}`, "margin 11": `{"version":1,"devices":{"a":1},"links":1,"margin":11,"activations":1,"working":1,"context_bytes":1}`,
		"larger than": strings.Repeat(" ", maxBytes+1),
	} {
		path := filepath.Join(t.TempDir(), "c.json")
		write(t, path, text)
		if _, err := Open(path); !errors.Is(err, errFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestBadMeasurements(t *testing.T) {
	list := files(t, row{plan(1, 1, "big"), 7, 0})
	for want, text := range map[string]string{
		":1: planner/calibration: invalid measurements: column \"time\"": "plan,time\n",
		"column plan is missing": "seconds\n",
		":2: planner/calibration: invalid measurements: seconds is \"0\"":    "plan,cluster,seconds\n0.json,nodes.yaml,0\n",
		":3: planner/calibration: invalid measurements: seconds is \"soon\"": "plan,cluster,seconds\n0.json,nodes.yaml,7\n0.json,nodes.yaml,soon\n",
		"peak_bytes is \"-1\"": "plan,cluster,seconds,peak_bytes\n0.json,nodes.yaml,7,-1\n",
		":2: planner/calibration: invalid measurements: cluster is empty": "plan,seconds\n0.json,7\n",
		"no plans in it":            "plan,seconds\n",
		"no such file":              "plan,seconds\nnone.json,7\n",
		"wrong number of fields":    "plan,seconds\n0.json\n",
		"larger than 1048576 bytes": strings.Repeat("#\n", maxBytes),
		"more than 1000 plans":      "plan,cluster,seconds\n" + strings.Repeat("0.json,nodes.yaml,7\n", maxRows+1),
		"planner: invalid plan":     "plan,cluster,seconds\nmeasured.csv,nodes.yaml,7\n",
		"layerprofile: invalid layer profile: other is in the cluster, but the layer prof": "plan,cluster,seconds\n0.json,other.yaml,7\n",
	} {
		write(t, list, text)
		write(t, filepath.Join(filepath.Dir(list), "other.yaml"), "nodes: [{device: other, memory: 1GB, link: 1GB/s}]")
		if _, err := load(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	write(t, list, "plan,cluster,seconds\n0.json,nodes.yaml,7\n")
	m, err := load(list)
	if err != nil {
		t.Fatal(err)
	}
	m[0].Plan = plan(1, 9, "big") // a micro-batch that was not profiled
	if _, err := New(m, "", ""); !errors.Is(err, planner.ErrPlan) || !strings.Contains(err.Error(), "line 2, 0.json") {
		t.Error(err)
	}
	if _, err := New(nil, "", ""); !errors.Is(err, errMeasured) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"version":1,"precision":"fp32","overlap":"off","devices":{"a":1},"links":1,"margin":0.1,"activations":1,"working":1,"context_bytes":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decode([]byte(text), "c.json")
		if err != nil {
			if !errors.Is(err, errFile) {
				t.Fatal(err)
			}
			return
		}
		var all []string
		for d := range c.Devices {
			all = append(all, d)
		}
		if _, err := c.Of(all); err != nil {
			t.Fatal(err)
		}
	})
}
