package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gotest.tools/v3/golden"
	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// example has what the forms must cope with: names that shells and YAML would read as
// something else, an absent node, a global batch that three ranks do not divide.
func example() Sizes {
	c := &cluster.Cluster{Workload: "Llama 3B/512 fp16", GlobalBatch: 64, Nodes: []cluster.Node{
		{Name: "a100-0", Device: "a100-40g", Limit: 16},
		{Name: "it's $(here)", Device: "\"t4\" & `co`", Limit: 16},
		{Name: "away", Device: "t4", Limit: 16},
		{Name: "no", Device: "1e3 # ü", Limit: 16},
	}}
	s := New(c, []int{47, 6, 0, 11})
	s.Nodes[2].LeftOut = tooSlow
	return s
}

// failer is what testing.T, F and rapid.T share here.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// equalised are the same shares in equal numbers of micro-steps.
func equalised(s Sizes) Sizes {
	least, most := cluster.MaxGlobalBatch, 1
	for _, n := range s.Ranks() {
		least, most = min(least, n.Share), max(most, n.MicroSteps)
	}
	s.EqualSteps, s.Deadline, s.Nodes = min(least, most), nil, slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Share > 0 {
			n.MicroSteps, n.MicroBatch, n.Limit, n.Deadline = s.EqualSteps, (n.Share+s.EqualSteps-1)/s.EqualSteps, 0, nil
		}
	}
	return s
}

// write writes s, for DeepSpeed equalised.
func write(t failer, format string, s Sizes) []byte {
	if format == "deepspeed" {
		s = equalised(s)
	}
	var b bytes.Buffer
	if err := Write(&b, format, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func formatNames() []string {
	var names []string
	for _, f := range Formats() {
		names = append(names, f.Name)
	}
	return names
}

// The reference has a section on every format.
func TestReferenceNamesEveryFormat(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/formats/sizes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range formatNames() {
		if !strings.Contains(string(text), "\n## "+name+"\n") {
			t.Errorf("docs/reference/formats/sizes.md has no section on %s", name)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, f := range Formats() {
		golden.AssertBytes(t, write(t, f.Name, example()), f.Name+".golden")
	}
}

// sizes draws valid sizes, some nodes absent, some with a learning rate.
func sizes(t *rapid.T) Sizes {
	name := rapid.StringOfN(rapid.RuneFrom([]rune("ab0-_. '\"$`\\:#{}[],&*!|>%@~éλ🙂=")), 1, 12, maxName)
	c := &cluster.Cluster{Workload: name.Draw(t, "workload")}
	names := rapid.SliceOfNDistinct(name, 1, 20, rapid.ID[string]).Draw(t, "names")
	batch := make([]int, len(names))
	for i, n := range names {
		c.Nodes = append(c.Nodes, cluster.Node{Name: n, Device: name.Draw(t, "device"), Limit: rapid.SampledFrom([]int{1, 7, 300, 1 << 20}).Draw(t, "limit")})
		batch[i] = rapid.IntRange(0, 1000).Draw(t, "size")
		c.GlobalBatch += batch[i]
	}
	if c.GlobalBatch == 0 {
		batch[0], c.GlobalBatch = 1, 1
	}
	s := New(c, batch)
	if scaling := rapid.SampledFrom(append(Scalings(), "")).Draw(t, "scaling"); scaling != "" {
		reference := rapid.IntRange((s.GlobalBatch+maxFactor-1)/maxFactor, 1<<20).Draw(t, "reference")
		if err := s.ScaleLearningRate(scaling, reference, rapid.Float64Range(0, 1e9).Draw(t, "noise scale")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var noLimit = cmpopts.IgnoreFields(Node{}, "Limit")

// Every form gives the sizes back to a reader of its kind.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sizes(t)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		got, err := Read(bytes.NewReader(write(t, "json", s)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, got, noLimit); d != "" {
			t.Fatal("json", d)
		}
		rows, err := csv.NewReader(bytes.NewReader(write(t, "csv", s))).ReadAll()
		if err != nil || len(rows) != 1+len(s.Nodes) {
			t.Fatalf("csv: %v, %d rows", err, len(rows))
		}
		for i, n := range s.Nodes {
			if r := rows[1+i]; r[1] != n.Name || r[2] != n.Device || r[3] != strconv.Itoa(n.MicroBatch) ||
				r[4] != strconv.Itoa(n.MicroSteps) || r[5] != strconv.Itoa(n.Share) {
				t.Fatalf("csv: %q for %+v", r, n)
			}
		}
		checkDeepSpeed(t, s)
		m := configMap(t, write(t, "kubernetes", s))
		if d := cmp.Diff(string(write(t, "json", s)), m.Data["sizes.json"]); d != "" {
			t.Fatal("kubernetes", d)
		}
		if d := cmp.Diff(string(write(t, "torchrun", s)), m.Data["sizes.sh"]); d != "" {
			t.Fatal("kubernetes", d)
		}
		if len(m.Data) != 2+len(s.Ranks()) {
			t.Fatalf("kubernetes: %d keys for %d ranks", len(m.Data), len(s.Ranks()))
		}
	})
}

// checkDeepSpeed holds the fragment for DeepSpeed to the sizes, and to what DeepSpeed asserts
// before it trains.
func checkDeepSpeed(t *rapid.T, s Sizes) {
	var ds struct {
		Train        int `json:"train_batch_size"`
		Micro        int `json:"train_micro_batch_size_per_gpu"`
		Accumulation int `json:"gradient_accumulation_steps"`
		Evenkeel     struct {
			Ranks     []Node
			Unequal   string
			Reference int     `json:"reference_batch"`
			Scaling   string  `json:"learning_rate_scaling"`
			Factor    float64 `json:"learning_rate_factor"`
		}
	}
	if err := json.Unmarshal(write(t, "deepspeed", s), &ds); err != nil {
		t.Fatal(err)
	}
	s = equalised(s)
	if d := cmp.Diff(s.Ranks(), ds.Evenkeel.Ranks, noLimit); d != "" {
		t.Fatal("deepspeed", d)
	}
	if e := ds.Evenkeel; e.Reference != s.ReferenceBatch || e.Scaling != s.LearningRateScaling || e.Factor != s.LearningRateFactor {
		t.Fatalf("deepspeed: %+v", ds)
	}
	if ds.Micro < 1 || ds.Train != ds.Micro*ds.Accumulation*len(s.Ranks()) {
		t.Fatalf("deepspeed: %+v", ds)
	}
	same := true // every rank can do what DeepSpeed's configuration says
	for _, n := range s.Ranks() {
		if ds.Accumulation != n.MicroSteps || n.Share < n.MicroSteps {
			t.Fatalf("deepspeed: %d micro-steps, %+v", ds.Accumulation, n)
		}
		same = same && n.Share == ds.Micro*ds.Accumulation
	}
	if same != (ds.Evenkeel.Unequal == "") {
		t.Fatalf("deepspeed: %+v", ds)
	}
}

type manifest struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   map[string]any    `yaml:"metadata"`
	Data       map[string]string `yaml:"data"`
}

func configMap(t failer, data []byte) manifest {
	var m manifest
	if err := yaml.UnmarshalWithOptions(data, &m, yaml.Strict()); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	name, _ := m.Metadata["name"].(string)
	if m.APIVersion != "v1" || m.Kind != "ConfigMap" || !dnsLabel(name) {
		t.Fatalf("%s %s %q", m.APIVersion, m.Kind, name)
	}
	for key := range m.Data {
		if strings.Trim(key, "-._abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Fatalf("key %q", key)
		}
	}
	return m
}

func dnsLabel(s string) bool {
	return s != "" && len(s) <= 63 && strings.Trim(s, "-") == s && strings.Trim(s, "-abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func TestLabel(t *testing.T) {
	for in, want := range map[string]string{
		"evenkeel-Llama 3B/512": "evenkeel-llama-3b-512", "evenkeel-___": "evenkeel",
		"evenkeel-" + strings.Repeat("x", 53) + "-y": "evenkeel-" + strings.Repeat("x", 53),
		"evenkeel-" + strings.Repeat("x", 99):        "evenkeel-" + strings.Repeat("x", 54),
	} {
		if got := label(in); got != want || !dnsLabel(got) {
			t.Errorf("label(%q) = %q, want %q", in, got, want)
		}
	}
}

// An equal average over ranks of weighted mean losses is the mean over samples.
func TestWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sizes(t)
		average, mean, sample := 0.0, 0.0, 0.0
		for _, n := range s.Ranks() {
			sum := 0.0
			for range n.Share {
				sum += math.Sin(sample) // any loss that differs from sample to sample
				sample++
			}
			average += n.GradientWeight * sum / float64(n.Share)
			mean += sum
		}
		average /= float64(len(s.Ranks()))
		mean /= float64(s.GlobalBatch)
		if math.Abs(average-mean) > 1e-9 {
			t.Fatalf("%v, want %v", average, mean)
		}
	})
}

func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("sizes.json", doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("sizes.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return sch.Validate(v)
	}
	good := write(t, "json", example())
	if err := check(good); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Sizes{scaled(), timed(t)} {
		if err := check(write(t, "json", s)); err != nil {
			t.Fatal(err)
		}
	}
	for old, with := range map[string]string{
		`"global_batch": 64,`: `"global_batch": 64, "learning_rate_factor": 2,`, `"workload": "`: `"reference_batch": 16, "workload": "`,
		`"version": 3`: `"version": 1`, `"micro_batch":16`: `"micro_batch":-1`, `"share":47`: `"share":-1`, `"micro_steps":3`: `"micro_steps":-3`, `"left_out":"too slow"`: `"left_out":1`, `"name":"away",`: ``,
		`"global_batch": 64`: `"global_batch": 64, "x": 1`, `"device":"t4"`: `"device":""`,
	} {
		text := bytes.Replace(good, []byte(old), []byte(with), 1)
		if bytes.Equal(text, good) {
			t.Fatalf("%s is not in the file", old)
		}
		if check(text) == nil {
			t.Errorf("the schema takes %s for %s", with, old)
		}
		if _, err := Read(bytes.NewReader(text)); !errors.Is(err, ErrSizes) {
			t.Errorf("Read takes %s for %s: %v", with, old, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Sizes){
		"version: is 2":                   func(s *Sizes) { s.Version = 2 },
		"the shares sum to 65":            func(s *Sizes) { s.Nodes[0].Share++ },
		"nodes[3].name: \"away\" is also": func(s *Sizes) { s.Nodes[3].Name = "away" },
		"nodes[1].share: is -1":           func(s *Sizes) { s.Nodes[1].Share = -1 },
		"nodes[1].micro_batch: is 0":      func(s *Sizes) { s.Nodes[1].MicroBatch = 0 },
		"nodes[1].micro_batch: is 7":      func(s *Sizes) { s.Nodes[1].MicroBatch = 7 },
		"nodes[2].micro_batch: is 1":      func(s *Sizes) { s.Nodes[2].MicroBatch = 1 },
		"nodes[0].micro_steps: is 2; a share of 47 in micro-batches of 16 takes 3": func(s *Sizes) { s.Nodes[0].MicroSteps = 2 },
		"nodes[0].left_out":                            func(s *Sizes) { s.Nodes[0].LeftOut = "too slow" },
		"nodes[2].left_out":                            func(s *Sizes) { s.Nodes[2].LeftOut = "a\nb" },
		"nodes[0].deadline: must be given":             func(s *Sizes) { s.Deadline = &Deadline{Seconds: 1, MicroSteps: cut} },
		"nodes[1].deadline: must be given":             func(s *Sizes) { s.Nodes[1].Deadline = &NodeDeadline{} },
		"the memory of it's $(here) holds 5":           func(s *Sizes) { s.Nodes[1].Limit = 5 },
		"nodes[0].gradient_weight: is NaN":             func(s *Sizes) { s.Nodes[0].GradientWeight = math.NaN() },
		"nodes[2].gradient_weight: is 1":               func(s *Sizes) { s.Nodes[2].GradientWeight = 1 },
		"nodes: 0 nodes":                               func(s *Sizes) { s.Nodes = nil },
		"global_batch: is 0":                           func(s *Sizes) { s.GlobalBatch = 0 },
		"workload: 0 bytes":                            func(s *Sizes) { s.Workload = "" },
		"nodes[0].device: 254 bytes":                   func(s *Sizes) { s.Nodes[0].Device = strings.Repeat("x", 254) },
		"nodes[0].name: \"a\\nb\" holds unprintable":   func(s *Sizes) { s.Nodes[0].Name = "a\nb" },
		"nodes[0].name: \"a\\u2028\" holds":            func(s *Sizes) { s.Nodes[0].Name = "a\u2028" },
		"nodes[0].device: \"\\xff\" holds unprintable": func(s *Sizes) { s.Nodes[0].Device = "\xff" },
	} {
		s := example()
		change(&s)
		err := s.Validate()
		if !errors.Is(err, ErrSizes) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		path := filepath.Join(t.TempDir(), "f")
		if Save(path, "json", s) == nil {
			t.Errorf("Save took what Validate refuses: %s", want)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file was left", want)
		}
	}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 1, Nodes: make([]cluster.Node, 1)}
	if err := New(c, []int{1, 2}).Validate(); !errors.Is(err, ErrSizes) {
		t.Errorf("two sizes for one node: %v", err)
	}
}

func TestUnknownFormat(t *testing.T) {
	for name, hint := range map[string]string{
		"jsn": "did you mean json?", "ENV": "did you mean torchrun?", "k8s": "did you mean kubernetes?", "torchrunn": "did you mean torchrun?",
		"": `"" (known: ` + strings.Join(formatNames(), ", ") + ")", strings.Repeat("json", 99): `jsonjson" (known`,
	} {
		if err := Write(&bytes.Buffer{}, name, example()); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%.9q: %v, want %s", name, err, hint)
		}
	}
}

func TestConfigMapLimit(t *testing.T) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 5000}
	batch := make([]int, 5000)
	for i := range batch {
		batch[i] = 1
		c.Nodes = append(c.Nodes, cluster.Node{Name: "node-" + strconv.Itoa(i), Device: "t4"})
	}
	if err := Write(&bytes.Buffer{}, "kubernetes", New(c, batch)); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
	write(t, "torchrun", New(c, batch))
}

func FuzzRead(f *testing.F) {
	f.Add(write(f, "json", example()))
	f.Add(write(f, "json", scaled()))
	f.Add(write(f, "json", timed(f)))
	f.Add([]byte(`{"version":3,"workload":"w","global_batch":1,"nodes":[{"name":"n","device":"d","micro_batch":1,"micro_steps":1,"share":1,"gradient_weight":1}]} x`))
	f.Add([]byte(`{"version":1e99}`))
	f.Add([]byte(`{"nodes":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrSizes) {
				t.Fatal(err)
			}
			return
		}
		for _, g := range Formats() {
			if err := Write(&bytes.Buffer{}, g.Name, s); err != nil && !errors.Is(err, errTooLarge) && (g.Name != "deepspeed" || !errors.Is(err, ErrFormat)) {
				t.Fatal(g.Name, err)
			}
		}
		again, err := Read(bytes.NewReader(write(t, "json", s)))
		if err != nil || !cmp.Equal(s, again) {
			t.Fatalf("%v\n%s", err, cmp.Diff(s, again))
		}
	})
}
