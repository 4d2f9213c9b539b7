package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"evenkeel/planner"
)

// even is a plan that every trainer can run: equal stages and shares.
func even(stages, layers, replicas, tensor int) *planner.Plan {
	p := &planner.Plan{Version: planner.Version, Model: "gpt", GlobalBatch: 4 * 2 * replicas, MicroBatch: 2 * replicas}
	for i := range stages {
		s := planner.Stage{From: i * layers, To: (i + 1) * layers}
		g := planner.Group{Devices: planner.Devices{Device: "a100", First: i * replicas * tensor, Count: replicas * tensor}, Tensor: tensor}
		for range replicas {
			g.MicroBatches = append(g.MicroBatches, 2)
		}
		s.Groups = []planner.Group{g}
		s.Strategies = []planner.Strategy{{From: s.From, To: s.To, Sharding: planner.Replicated}}
		p.Stages = append(p.Stages, s)
	}
	return p
}

// mixed is a plan that only the torch form can hold: two classes, uneven shares, other tensor degrees and strategies.
func mixed() *planner.Plan {
	return &planner.Plan{Version: planner.Version, Model: `it's "gpt" \ 'ü'`, GlobalBatch: 32, MicroBatch: 8, Stages: []planner.Stage{
		{From: 0, To: 4, Groups: []planner.Group{
			{Devices: planner.Devices{Device: "a100", First: 0, Count: 4}, Tensor: 2, MicroBatches: []int{3, 3}},
			{Devices: planner.Devices{Device: "t4", First: 4, Count: 2}, Tensor: 1, MicroBatches: []int{1, 1}}},
			Strategies: []planner.Strategy{{From: 0, To: 1, Sharding: planner.Full}, {From: 1, To: 4, Sharding: planner.Optimizer, Checkpoint: true}}},
		{From: 4, To: 6, Groups: []planner.Group{{Devices: planner.Devices{Device: "t4", First: 0, Count: 4}, Tensor: 1, MicroBatches: []int{2, 2, 2, 2}}},
			Strategies: []planner.Strategy{{From: 4, To: 5, Tensor: 2, Sharding: planner.Replicated}, {From: 5, To: 6, Sharding: planner.Replicated}}},
	}}
}

// cut moves the boundaries of stages: the layers of each.
func cut(p *planner.Plan, layers ...int) *planner.Plan {
	from := 0
	for i, n := range layers {
		s := &p.Stages[i]
		s.From, s.To = from, from+n
		s.Strategies = []planner.Strategy{{From: from, To: from + n, Sharding: s.Strategies[0].Sharding}}
		from += n
	}
	return p
}

// again recomputes the first n layers of every stage.
func again(p *planner.Plan, n ...int) *planner.Plan {
	for i := range p.Stages {
		s := &p.Stages[i]
		sharding := s.Strategies[0].Sharding
		s.Strategies = nil
		if n[i] > 0 {
			s.Strategies = append(s.Strategies, planner.Strategy{From: s.From, To: s.From + n[i], Sharding: sharding, Checkpoint: true})
		}
		if s.From+n[i] < s.To {
			s.Strategies = append(s.Strategies, planner.Strategy{From: s.From + n[i], To: s.To, Sharding: sharding})
		}
	}
	return p
}

func sharded(p *planner.Plan, sharding planner.Sharding) *planner.Plan {
	for i := range p.Stages {
		for j := range p.Stages[i].Strategies {
			p.Stages[i].Strategies[j].Sharding = sharding
		}
	}
	return p
}

func write(t *testing.T, format string, p *planner.Plan, o Options) (string, []string) {
	t.Helper()
	var b bytes.Buffer
	warnings, err := Write(&b, format, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), warnings
}

func TestGolden(t *testing.T) {
	plan := sharded(again(cut(even(3, 4, 2, 2), 5, 4, 3), 3, 2, 2), planner.Optimizer)
	text, _ := write(t, "megatron", plan, Options{EmbeddingLayers: 1, HeadLayers: 1})
	golden.Assert(t, text, "megatron.golden")
	text, _ = write(t, "deepspeed", sharded(again(cut(even(3, 4, 2, 2), 5, 4, 3), 5, 4, 3), planner.Optimizer), Options{})
	golden.Assert(t, text, "deepspeed.golden")
	text, warnings := write(t, "torch", mixed(), Options{})
	golden.Assert(t, text, "torch.golden")
	if len(warnings) > 0 {
		t.Error(warnings)
	}
}

// What follows the batch sizes in the arguments, and the number of layers.
func TestMegatron(t *testing.T) {
	ends := Options{EmbeddingLayers: 1, HeadLayers: 1}
	late := even(2, 3, 2, 1)
	for i := range late.Stages {
		s := &late.Stages[i]
		s.Strategies = []planner.Strategy{{From: s.From, To: s.From + 1, Sharding: planner.Replicated}, {From: s.From + 1, To: s.To, Sharding: planner.Replicated, Checkpoint: true}}
	}
	const counted, full = "count as transformer layers", "--recompute-granularity full --recompute-method "
	for _, c := range []struct {
		name   string
		p      *planner.Plan
		o      Options
		layers int
		want   string
		warn   string
	}{
		{"equal", even(3, 4, 2, 2), Options{}, 12, "", counted},
		{"one stage", even(1, 4, 2, 1), ends, 2, "", ""},
		{"equal blocks", cut(even(3, 4, 2, 1), 5, 4, 5), ends, 12, "", ""},
		{"ends", cut(even(4, 4, 2, 1), 3, 4, 4, 2), Options{}, 13, "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2", counted},
		{"two", cut(even(2, 4, 2, 1), 3, 4), Options{}, 7, "--decoder-first-pipeline-num-layers 3", counted},
		{"uneven", cut(even(4, 4, 2, 1), 3, 1, 2, 2), Options{}, 8, "--pipeline-model-parallel-layout Ettt|t|tt|ttL", counted},
		{"embedding alone", cut(even(3, 4, 2, 1), 1, 4, 2), ends, 5, "--pipeline-model-parallel-layout E|tttt|tL", ""},
		{"all again", again(even(2, 3, 2, 1), 3, 3), Options{}, 6, full + "uniform --recompute-num-layers 1", counted},
		{"some again", again(even(2, 3, 2, 1), 2, 2), Options{}, 6, full + "block --recompute-num-layers 2", counted},
		{"ends again", again(even(2, 3, 2, 1), 3, 3), ends, 4, full + "uniform --recompute-num-layers 1", "layer 5: Megatron-LM recomputes transformer layers"},
		{"middle again", late, Options{}, 6, full + "block --recompute-num-layers 2", "stages[1]: layer 3 keeps its activations and layer 4 does not"},
		{"short stage", again(cut(even(2, 3, 2, 1), 3, 1), 2, 1), Options{}, 4, "--decoder-first-pipeline-num-layers 3 " + full + "block --recompute-num-layers 2", counted},
		{"interleaved", interleaved(even(6, 2, 2, 1)), Options{}, 12, "--num-layers-per-virtual-pipeline-stage 2", counted},
		{"interleaved, transfers apart", apart(interleaved(even(6, 2, 2, 1))), Options{}, 12, "--num-layers-per-virtual-pipeline-stage 2 --no-overlap-p2p-communication", counted},
		{"interleaved, uneven", interleaved(cut(even(6, 2, 2, 1), 1, 2, 3, 1, 1, 4)), Options{}, 12, "--pipeline-model-parallel-layout Et|tt|ttt|t|t|ttttL", counted},
		{"interleaved, ends", interleaved(even(6, 2, 2, 1)), ends, 10, "--pipeline-model-parallel-layout Et|tt|tt|tt|tt|tL", ""},
		{"optimizer", sharded(even(2, 3, 2, 1), planner.Optimizer), Options{}, 6, "--use-distributed-optimizer", counted},
		{"gradients", sharded(even(1, 3, 2, 1), planner.Gradients), Options{}, 3, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads " +
			"--use-distributed-optimizer --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor", "sharding gradients is Megatron-FSDP"},
		{"full", sharded(even(1, 3, 2, 1), planner.Full), Options{}, 3, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params " +
			"--use-distributed-optimizer --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor", "CUDA_DEVICE_MAX_CONNECTIONS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, warnings := write(t, "megatron", c.p, c.o)
			var all []string
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "#") {
					all = append(all, strings.TrimSpace(line))
				}
			}
			g := c.p.Stages[0].Groups[0]
			want := fmt.Sprintf("--num-layers %d --tensor-model-parallel-size %d --pipeline-model-parallel-size %d --micro-batch-size 2 --global-batch-size %d",
				c.layers, g.Tensor, c.p.Pipeline(), c.p.GlobalBatch)
			if c.want != "" {
				want += " " + c.want
			}
			if got := strings.Join(all, " "); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			if got := strings.Join(warnings, "\n"); !strings.Contains(got, c.warn) || c.warn == "" && got != "" {
				t.Errorf("warnings: %q, want %q", got, c.warn)
			}
		})
	}
}

// interleaved puts the second half of the stages on the devices of the first.
func interleaved(p *planner.Plan) *planner.Plan {
	p.Schedule, p.Chunks, p.Transfers = planner.ScheduleInterleaved, 2, planner.TransfersOverlap
	half := len(p.Stages) / 2
	for k := range half {
		p.Stages[half+k].Groups = p.Stages[k].Groups
	}
	p.GlobalBatch = p.MicroBatch * half * 4
	return p
}

// apart is a plan whose stages do not compute while they send.
func apart(p *planner.Plan) *planner.Plan {
	p.Transfers = ""
	return p
}

func TestDeepSpeed(t *testing.T) {
	for _, c := range []struct {
		name string
		p    *planner.Plan
		want string // of the configuration without "evenkeel"
		warn string
	}{
		{"pipeline", even(3, 4, 2, 1), `"zero_optimization":{"stage":0}`, "num_stages=3; partition_method='uniform'. Layers are cut at [0 4 8 12]"},
		{"a layer more", cut(even(3, 4, 2, 1), 5, 5, 4), `"zero_optimization":{"stage":0}`, "partition_method='uniform'"},
		{"uneven", cut(even(3, 4, 2, 1), 4, 5, 5), `"zero_optimization":{"stage":0}`, "override _partition_layers"},
		{"model parallel", even(2, 4, 2, 2), `"zero_optimization":{"stage":0}`, "topology=PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=2)"},
		{"again", again(even(2, 3, 2, 1), 3, 3), `"pipeline":{"activation_checkpoint_interval":1},"zero_optimization":{"stage":0}`, "num_stages=2"},
		{"optimizer", sharded(even(1, 3, 2, 1), planner.Optimizer), `"zero_optimization":{"stage":1}`, ""},
		{"gradients", sharded(even(1, 3, 2, 1), planner.Gradients), `"zero_optimization":{"stage":2}`, ""},
		{"full", sharded(even(1, 3, 2, 1), planner.Full), `"zero_optimization":{"stage":3}`, ""},
		{"tensor", even(1, 3, 2, 2), `"tensor_parallel":{"autotp_size":2},"zero_optimization":{"stage":0}`, ""},
		{"some again", again(even(1, 3, 2, 1), 2), `"zero_optimization":{"stage":0}`, "2 of 3 layers are recomputed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, warnings := write(t, "deepspeed", c.p, Options{})
			var config map[string]any
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			g := c.p.Stages[0].Groups[0]
			// What DeepSpeed asserts before it trains.
			ours := config["evenkeel"].(map[string]any)
			if config["train_batch_size"] != config["train_micro_batch_size_per_gpu"].(float64)*config["gradient_accumulation_steps"].(float64)*ours["num_dp"].(float64) ||
				config["train_batch_size"] != float64(c.p.GlobalBatch) || ours["num_mp"] != float64(g.Tensor) {
				t.Errorf("%v", config)
			}
			for _, k := range []string{"evenkeel", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"} {
				delete(config, k)
			}
			rest, err := json.Marshal(config)
			if err != nil || string(rest) != "{"+c.want+"}" {
				t.Errorf("%s, want %s", rest, c.want)
			}
			if got := strings.Join(warnings, "\n"); !strings.Contains(got, c.warn) || c.warn == "" && got != "" {
				t.Errorf("warnings: %q, want %q", got, c.warn)
			}
		})
	}
}

// A tensor degree of the layers' own counts as if it were the group's.
func TestOwnTensor(t *testing.T) {
	p := even(2, 3, 2, 2)
	for i := range p.Stages {
		p.Stages[i].Strategies[0].Tensor = 4
	}
	text, _ := write(t, "megatron", p, Options{})
	if want := "--tensor-model-parallel-size 4\n--pipeline-model-parallel-size 2\n--micro-batch-size 4\n--global-batch-size 16\n"; !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	for i := range p.Stages { // four replicas cannot take 22 samples evenly
		p.Stages[i].Strategies[0].Tensor = 1
		p.Stages[i].Groups[0].MicroBatches = []int{11, 11}
	}
	p.MicroBatch, p.GlobalBatch = 22, 44
	if _, err := Write(&bytes.Buffer{}, "deepspeed", p, Options{}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "unequal shares") {
		t.Error(err)
	}
}

// Nothing that a trainer cannot do is dropped silently.
func TestUnsupported(t *testing.T) {
	change := func(f func(p *planner.Plan)) *planner.Plan {
		p := even(2, 3, 2, 2)
		f(p)
		return p
	}
	both := []string{"megatron", "deepspeed"}
	for _, c := range []struct {
		p       *planner.Plan
		o       Options
		formats []string
		want    string
	}{
		{change(func(p *planner.Plan) {
			p.Stages[1].Groups[0].Tensor = 1
			p.Stages[1].Groups[0].MicroBatches = []int{1, 1, 1, 1}
		}), Options{}, both, "stages[1]: tensor degrees [1]; must all be 2"},
		{change(func(p *planner.Plan) { p.Stages[1].Strategies[0].Tensor = 4 }), Options{}, both, "stages[1]: tensor degrees [4]; must all be 2"},
		{change(func(p *planner.Plan) { p.Stages[0].Groups[0].MicroBatches = []int{3, 1} }), Options{}, both, "stages[0]: its replicas take unequal shares"},
		{change(func(p *planner.Plan) { p.Stages[1].Groups[0].Count = 2; p.Stages[1].Groups[0].MicroBatches = []int{4} }), Options{}, both, "stages[1]: 1 replicas; must be 2"},
		{change(func(p *planner.Plan) { p.Stages[1].Strategies[0].Sharding = planner.Full }), Options{}, both, "stages[1]: layers 3-5 have sharding full, those before none"},
		{interleaved(even(4, 3, 2, 2)), Options{}, []string{"deepspeed"}, "schedule: is interleaved; it runs 1f1b"},
		{change(func(p *planner.Plan) { p.Schedule, p.Transfers = planner.ScheduleZeroBubble, planner.TransfersOverlap }), Options{}, both, "schedule: is zb-h1; it runs 1f1b"},
		{change(func(p *planner.Plan) { p.Schedule = planner.ScheduleZeroBubble }), Options{}, []string{"torch"}, "transfers: do not overlap with computing; PyTorch's pipelining runs zb-h1 with transfers \"overlap\""},
		{change(func(p *planner.Plan) {
			p.Schedule, p.Transfers, p.GlobalBatch = planner.ScheduleZeroBubble, planner.TransfersOverlap, 5*p.MicroBatch
		}), Options{}, []string{"torch"}, "micro_batch: gives 5 micro-batches, which PyTorch's ScheduleInterleavedZeroBubble cannot run"},
		{change(func(p *planner.Plan) { p.Schedule, p.Warmup = planner.ScheduleAhead, []int{3, 1} }), Options{}, both, "schedule: is h-1f1b; it runs 1f1b"},
		{sharded(even(2, 3, 2, 2), planner.Full), Options{}, both, "sharding full with 2 stages"},
		{sharded(even(2, 3, 2, 2), planner.Gradients), Options{}, both, "sharding gradients with 2 stages"},
		{again(even(2, 3, 2, 1), 2, 1), Options{}, both[:1], "stages[1]: 1 layers are recomputed; must be 2"},
		{again(even(2, 3, 2, 1), 2, 2), Options{}, both[1:], "4 of 6 layers are recomputed"},
		{even(2, 3, 2, 1), Options{EmbeddingLayers: 4}, both[:1], "stages[0]: ends before layer 3"},
		{even(2, 3, 2, 1), Options{HeadLayers: 4}, both[:1], "stages[1]: begins after layer 2"},
		{mixed(), Options{}, both, "stages[0]: tensor degrees [2 1]; must all be 2 as in the first stage, for there is one for all layers and devices; stages[0]: its replicas take unequal shares"},
	} {
		for _, format := range c.formats {
			var out bytes.Buffer
			_, err := Write(&out, format, c.p, c.o)
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v\nwant %s", format, err, c.want)
			}
			if out.Len() > 0 {
				t.Errorf("%s: %d bytes were written", c.want, out.Len())
			}
		}
		if !slices.Contains(c.formats, "torch") {
			write(t, "torch", c.p, Options{})
		}
	}
}

// Interleaved on two devices, Megatron-LM cannot keep transfers apart (validate_args).
func TestTransfersApart(t *testing.T) {
	_, err := Write(io.Discard, "megatron", apart(interleaved(even(4, 3, 2, 2))), Options{})
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "transfers: do not overlap with computing; interleaved on 2 devices, they must") {
		t.Error(err)
	}
}

func TestBadInput(t *testing.T) {
	var b bytes.Buffer
	for name, hint := range map[string]string{
		"pytorch": "did you mean torch?", "Megatron": "did you mean megatron?", "zero": "did you mean deepspeed?", "": `"" (known: megatron, deepspeed, torch)`,
	} {
		if _, err := Write(&b, name, even(1, 1, 1, 1), Options{}); !errors.Is(err, errFormat) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, o := range []Options{{EmbeddingLayers: -1}, {HeadLayers: -1}, {EmbeddingLayers: 2, HeadLayers: 1}} {
		if _, err := Write(&b, "megatron", even(1, 3, 1, 1), o); !errors.Is(err, errOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, change := range []func(*planner.Plan){
		func(p *planner.Plan) { p.Model = "x\nimport os" }, func(p *planner.Plan) { p.Stages[0].From = 1 },
		func(p *planner.Plan) { p.Stages[0].Groups[0].Device = "a\"\n" }, func(p *planner.Plan) { p.Stages = nil },
	} {
		p := even(1, 3, 1, 1)
		change(p)
		for _, f := range Formats() {
			if _, err := Write(&b, f.Name, p, Options{}); !errors.Is(err, planner.ErrPlan) {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
	if b.Len() > 0 {
		t.Errorf("written: %s", b.String())
	}
}

// Whatever plan can be read is written or refused, and what is written has one line for what it says in one.
func FuzzWrite(f *testing.F) {
	for _, p := range []*planner.Plan{even(2, 3, 2, 2), mixed(), again(cut(even(3, 4, 2, 1), 5, 4, 3), 3, 2, 2)} {
		data, err := p.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 1, 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, embedding, head int) {
		p, err := planner.ReadPlan(bytes.NewReader(data), "p")
		if err != nil {
			return
		}
		for _, format := range Formats() {
			var b bytes.Buffer
			warnings, err := Write(&b, format.Name, p, Options{EmbeddingLayers: embedding, HeadLayers: head})
			if err != nil && !errors.Is(err, ErrUnsupported) && !errors.Is(err, errOptions) {
				t.Fatal(format.Name, err)
			}
			if (err == nil) != (b.Len() > 0) || err != nil && len(warnings) > 0 {
				t.Fatalf("%s: %d bytes, %v, %v", format.Name, b.Len(), warnings, err)
			}
			if format.Name == "megatron" {
				for line := range strings.Lines(b.String()) {
					if line[0] != '#' && !strings.HasPrefix(line, "--") {
						t.Fatalf("%q", line)
					}
				}
			}
		}
	})
}
