package estimate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/planner/layerprofile"
)

// The parameters that the models are published with.
func TestParameters(t *testing.T) {
	for name, want := range map[string]float64{
		"gpt2-xl": 1557611200, "llama-7b": 6738415616, "llama-2-7b": 6738415616, "llama-2-13b": 13015864320, "llama-3-8b": 8030261248, "llama-3-70b": 70553706496,
		"mistral-7b": 7241732096, "mixtral-8x7b": 46702792704, "qwen2.5-7b": 7615616512,
	} {
		m, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Parameters(); got != want {
			t.Errorf("%s: %.0f parameters, want %.0f", name, got, want)
		}
	}
}

func TestBadModels(t *testing.T) {
	const good = `"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100`
	if _, err := Read([]byte("{"+good+"}"), "x"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"true": true, "false": false} {
		if m, err := Read([]byte("{"+good+`, "tie_word_embeddings": `+text+"}"), "x"); err != nil || m.Tied != want {
			t.Errorf("%+v, %v", m, err)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":  {"[", "unexpected end"},
		"type":     {`{"model_type": "mamba"}`, `model_type is "mamba"; known are gemma`},
		"missing":  {`{"model_type": "llama", "hidden_size": 64}`, "num_hidden_layers or n_layer or num_layers is missing"},
		"fraction": {strings.Replace("{"+good+"}", "64", "64.5", 1), "hidden_size is 64.5; must be a whole number"},
		"zero":     {strings.Replace("{"+good+"}", ": 2,", ": 0,", 1), "num_hidden_layers is 0"},
		"text":     {strings.Replace("{"+good+"}", "100", `"100"`, 1), "vocab_size is 100; must be a whole number"},
		"heads":    {"{" + good + `, "num_key_value_heads": 3}`, "num_key_value_heads is 3; must divide the 4 heads"},
		"experts":  {"{" + good + `, "num_experts": 2, "num_experts_per_tok": 3}`, "num_experts_per_tok is 3 of 2 experts"},
		"active":   {"{" + good + `, "num_experts": 2}`, "num_experts_per_tok is missing"},
		"unlike":   {"{" + good + `, "decoder_sparse_step": 2}`, "decoder_sparse_step is 2"},
	} {
		if _, err := Read([]byte(c.text), "x.json"); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.json") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := Load("llama-4"); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "llama-3-8b") {
		t.Error(err)
	}
	if _, err := Load("none/config.json"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte("{"+good+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := Load(folder); err != nil || m.Hidden != 64 || m.KV != 4 || m.Head != 16 || m.Tied {
		t.Errorf("%+v, %v", m, err)
	}
}

func topology(t *testing.T, nodes string) *cluster.Topology {
	t.Helper()
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes:\n"+nodes), "c.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

var mixed = Options{Weights: 2, Gradients: 4, Optimizer: 12}

func estimated(t *testing.T, model, nodes string, o Options) *layerprofile.Profile {
	t.Helper()
	m, err := Load(model)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Profile(topology(t, nodes), profile.Embedded(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t *testing.T, l layerprofile.Layer, device string, tensor, samples int) layerprofile.Run {
	t.Helper()
	r, ok := l.Curve(device, layerprofile.Degree{Tensor: tensor, Machines: 1}).At(samples)
	if !ok {
		t.Fatalf("%s has no run on %s at %d", l.Name, device, tensor)
	}
	return r
}

// A layer of Llama-7B with 1,024 tokens on an A100, as the authors of Cephalo measured it, by micro-batch: the
// measurements that the shares of the data sheet were fitted to, and those of a V100, which were not used.
func TestMeasuredLayers(t *testing.T) {
	o := mixed
	o.Tokens = 1024
	block := estimated(t, "llama-7b", "  - {device: a100-40g, count: 1}\n  - {device: v100, count: 1}\n", o).Layers[5]
	for _, c := range []struct {
		device  string
		samples int
		seconds float64
	}{{"a100-40g", 1, 10.835e-3}, {"a100-40g", 8, 60.045e-3}, {"v100", 1, 23.509e-3}, {"v100", 4, 75.634e-3}} {
		r := run(t, block, c.device, 1, c.samples)
		if got := r.Forward + r.Backward; math.Abs(got/c.seconds-1) > 0.05 {
			t.Errorf("%s, %d samples: %v s, measured %v", c.device, c.samples, got, c.seconds)
		}
	}
}

// A T4 multiplies matrices at 24 teraflops in 16 bits, for lack of power; in 32 bits it has enough.
func TestPowerLimit(t *testing.T) {
	o := mixed
	o.Tokens = 1024
	const t4, v100 = "  - {device: t4, count: 1}\n", "  - {device: v100, count: 1}\n"
	products := 2 * 202375168.0 * 8 * 1024 // of a layer of Llama-7B, 8 samples
	r := run(t, estimated(t, "llama-7b", t4, o).Layers[5], "t4", 1, 8)
	if least := products / (65e12 * 585 / 1590); r.Forward < least || r.Forward > 1.4*least {
		t.Errorf("forward %v s; products take %v s at the base clock", r.Forward, least)
	}
	o.Weights, o.Optimizer = 4, 8
	slow, quick := run(t, estimated(t, "llama-7b", t4, o).Layers[5], "t4", 1, 8), run(t, estimated(t, "llama-7b", v100, o).Layers[5], "v100", 1, 8)
	if got, want := slow.Forward/quick.Forward, 15.7/8.1; math.Abs(got/want-1) > 0.05 {
		t.Errorf("in 32 bits %v times as long as a V100, whose data sheet has %v times as much", got, want)
	}
}

// Korthikanti et al. (arXiv 2205.05198) count s h (10 + 24/t + 5 a s / (h t)) bytes. Here norms and the softmax keep a copy in
// 32 bits as well, norms their outputs, and attention drops nothing.
func TestActivations(t *testing.T) {
	o := mixed
	o.Eager = true
	p := estimated(t, "gpt2-xl", "  - {device: a100-40g, count: 5, per_machine: 5, inside: 200GB/s}\n", o)
	s, h, a := 1024.0, 1600.0, 25.0
	r := run(t, p.Layers[1], "a100-40g", 1, 1)
	if want := beside * s * h * (18 + 24 + 6*a*s/h); math.Abs(r.Activation/want-1) > 1e-12 || r.Freed != 6*a*s*s || r.Sequence != 0 || !(r.Selective > 0 && r.Selective < r.Forward) {
		t.Errorf("%+v; want %v bytes", r, want)
	}
	if d := p.Degrees("a100-40g"); len(d) != 1 { // 2 does not divide 25 heads
		t.Error(d)
	}
	if l := p.Layers[49]; l.Tied != 50257*h || l.Parameters != 50258*h || p.Layers[0].Parameters != (50257+1024)*h {
		t.Errorf("%+v", l)
	}
}

func TestTensorDegrees(t *testing.T) {
	const machine = "  - {device: a100-80g@1, count: 8, per_machine: 8, inside: %s}\n"
	p := estimated(t, "llama-3-8b", strings.Replace(machine, "%s", "300GB/s", 1), mixed)
	s, h := 4096.0, 4096.0
	whole, eighth := run(t, p.Layers[1], "a100-80g@1", 1, 2), run(t, p.Layers[1], "a100-80g@1", 8, 2)
	// Two all-reduces a pass, each of 14 steps of an eighth of the output.
	all := 14*2*s*h*2/8/300e9 + latency(8)
	if x := eighth.Forward - 2*all; !(x > whole.Forward/8 && x < whole.Forward/5) {
		t.Errorf("forward %v, of which %v is sent; whole %v", eighth.Forward, 2*all, whole.Forward)
	}
	if eighth.Sequence != 16*s*h*7/8 || whole.Sequence != 0 {
		t.Errorf("%v bytes of a sequence", eighth.Sequence)
	}
	if got, want := eighth.Activation/beside, 16*s*h+(whole.Activation/beside-16*s*h)/8; math.Abs(got/want-1) > 1e-12 {
		t.Errorf("%v bytes, want %v", got, want)
	}
	if math.Abs(eighth.Update*8/whole.Update-1) > 1e-12 {
		t.Errorf("an eighth is updated in %v s, all in %v", eighth.Update, whole.Update)
	}
	if l := p.Layers[1]; l.Context != 4*s*h*8/32 {
		t.Errorf("%v bytes of keys and values", l.Context)
	}
	for given, message := range map[string]float64{", latency: 1ms": 1e-3, "": 0} {
		slow := estimated(t, "llama-3-8b", strings.Replace(machine, "%s", "{bandwidth: 10GB/s, start: 3ms"+given+"}", 1), mixed)
		if got, want := run(t, slow.Layers[1], "a100-80g@1", 8, 2).Forward-(eighth.Forward-2*all), 2*(14*(2*s*h*2/8/10e9+message)+3e-3); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("sent in %v s, want %v", got, want)
		}
	}
	if p := estimated(t, "llama-3-8b", "  - {device: h200, count: 2, per_machine: 2}\n", mixed); len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "h200: the cluster file has no bandwidth") {
		t.Error(p.Warnings)
	}
}

func TestExperts(t *testing.T) {
	p := estimated(t, "mixtral-8x7b", "  - {device: h200, count: 1}\n", mixed)
	l := p.Layers[1]
	h, inner := 4096.0, 14336.0
	if l.Experts != 8 || l.ExpertParameters != 24*h*inner || l.ExpertBytes != 2*4096*h*2 {
		t.Errorf("%+v", l)
	}
	// Of eight experts a token passes two: twice the products of one.
	dense := run(t, estimated(t, "mistral-7b", "  - {device: h200, count: 1}\n", mixed).Layers[1], "h200", 1, 8)
	r := run(t, l, "h200", 1, 8)
	network := 6 * 8 * 4096 * h * inner / (989e12 * reachedFLOPS)
	if more := r.Forward - dense.Forward; !(more > network && more < 1.7*network) {
		t.Errorf("experts take %v s more, another network alone %v", more, network)
	}
}

func TestHeadAndUpdate(t *testing.T) {
	p := estimated(t, "llama-3-8b", "  - {device: h100-80g, count: 1}\n", mixed)
	s, h, v := 4096.0, 4096.0, 128256.0
	last := p.Layers[len(p.Layers)-1]
	r := run(t, last, "h100-80g", 1, 1)
	if want := beside * (8*s*h + 10*s*v); r.Activation != want || last.Output != 0 || last.Tied != 0 {
		t.Errorf("%+v: want %v bytes", r, want)
	}
	if want := (v + 1) * h * 36 / (3350e9 * reachedBandwidth); math.Abs(r.Update/want-1) > 1e-12 {
		t.Errorf("update %v, want %v", r.Update, want)
	}
	if least := 2 * s * h * v / (989e12 * reachedFLOPS); !(r.Forward > least && r.Forward < 2.5*least) || r.Backward < 2*least {
		t.Errorf("%+v, products alone %v", r, least)
	}
	wide := run(t, estimated(t, "llama-3-8b", "  - {device: h100-80g, count: 1}\n", Options{Weights: 4, Gradients: 4, Optimizer: 8}).Layers[1], "h100-80g", 1, 1)
	if narrow := run(t, p.Layers[1], "h100-80g", 1, 1); wide.Forward < 8*narrow.Forward {
		t.Errorf("32 bits take %v, 16 bits %v", wide.Forward, narrow.Forward)
	}
}

func TestBadEstimates(t *testing.T) {
	m, err := Load("llama-7b")
	if err != nil {
		t.Fatal(err)
	}
	for nodes, want := range map[string]string{
		"  - {device: rtx-3081, count: 1, memory: 8GiB}\n": "did you mean [rtx-3080",
		"  - {device: zzz, count: 1, memory: 8GiB}\n":      "no data sheet of \"zzz\" is known; evenkeel profiles devices",
	} {
		if _, err := m.Profile(topology(t, nodes), profile.Embedded(), mixed); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	long := mixed
	long.Tokens = 4096
	if _, err := m.Profile(topology(t, "  - {device: l4, count: 1}\n"), profile.Embedded(), long); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "at most 2048") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(string(known))
	f.Add(`{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}`)
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := Read([]byte(text), "x"); err == nil && !(m.Parameters() > 0) {
			t.Fatalf("%+v", m)
		}
	})
}
