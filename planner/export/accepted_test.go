package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"evenkeel/planner"
	"evenkeel/planner/costmodel"
)

// accepted writes a plan and checks what comes out as the trainer does, and that it has what the prediction assumes.
func accepted(trainer string, p *planner.Plan) (string, error) {
	var b strings.Builder
	if _, err := Write(&b, trainer, p, Options{}); err != nil {
		return "", err
	}
	switch trainer {
	case "megatron":
		return b.String(), megatronAccepts(b.String(), p)
	case "deepspeed":
		return b.String(), deepSpeedAccepts(b.String(), p)
	}
	for _, want := range []string{fmt.Sprintf("\nPRECISION = %q ", p.Predicted.Precision), fmt.Sprintf("\nOVERLAP = %q ", p.Predicted.Overlap)} {
		if !strings.Contains(b.String(), want) {
			return b.String(), fmt.Errorf("no %q", want)
		}
	}
	for _, want := range []string{fmt.Sprintf("\nCONTEXT = %d ", max(1, p.Context)), fmt.Sprintf("\nEXPERTS = %d ", max(1, p.Experts))} {
		if !strings.Contains(b.String(), want) {
			return b.String(), fmt.Errorf("no %q", want)
		}
	}
	if strings.Contains(b.String(), "\nSEQUENCE_PARALLEL = True ") != p.Predicted.Sequence {
		return b.String(), fmt.Errorf("sequence parallelism: %v", p.Predicted.Sequence)
	}
	if strings.Contains(b.String(), "\nTIED = True ") != p.Predicted.Tied {
		return b.String(), fmt.Errorf("tied weights: %v", p.Predicted.Tied)
	}
	return b.String(), nil
}

func devicesOf(p *planner.Plan) int {
	n := 0
	for _, s := range p.Stages[:p.Pipeline()] {
		for _, g := range s.Groups {
			n += g.Count
		}
	}
	return n
}

// megatronAccepts has the checks of megatron/training/arguments.py (validate_args) that concern these options.
func megatronAccepts(text string, p *planner.Plan) error {
	flags := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			name, value, _ := strings.Cut(line, " ")
			if _, twice := flags[name]; twice {
				return fmt.Errorf("%s is given twice", name)
			}
			flags[name] = value
		}
	}
	on := func(name string) bool { _, ok := flags[name]; return ok }
	number := func(name string) int { n, _ := strconv.Atoi(flags[name]); return n }
	tensor, stages, micro := number("--tensor-model-parallel-size"), number("--pipeline-model-parallel-size"), number("--micro-batch-size")
	context, experts := max(1, number("--context-parallel-size")), max(1, number("--expert-model-parallel-size"))
	data := devicesOf(p) / max(1, tensor*stages*context)
	sharded := on("--use-distributed-optimizer")
	bf16, overlap := p.Predicted.Precision == "bf16", p.Predicted.Overlap == "on" && data > 1
	virtual := 0 // stages of a device
	if n := number("--num-layers-per-virtual-pipeline-stage"); n > 0 {
		if stages < 2 || number("--num-layers")%(stages*n) != 0 {
			return fmt.Errorf("%d layers in virtual stages of %d on %d", number("--num-layers"), n, stages)
		}
		virtual = number("--num-layers") / stages / n
	} else if layout := flags["--pipeline-model-parallel-layout"]; layout != "" {
		parts := strings.Count(layout, "|") + 1
		if virtual = parts / stages; parts%stages != 0 || strings.Count(layout, "t") != number("--num-layers") {
			return fmt.Errorf("%s on %d stages", layout, stages)
		}
	}
	if virtual = max(1, virtual); virtual != max(1, p.Chunks) || virtual > 1 && p.MicroBatches()%stages != 0 {
		return fmt.Errorf("%d virtual stages on each of %d, %d micro-batches; the plan has %d chunks", virtual, stages, p.MicroBatches(), p.Chunks)
	}
	switch {
	case context != max(1, p.Context) || experts != max(1, p.Experts):
		return fmt.Errorf("context %d, experts %d", context, experts)
	case (flags["--moe-token-dispatcher-type"] == "alltoall") != (experts > 1):
		return errors.New("experts are sent to all by all")
	case data%experts != 0 || p.Predicted.Mixture && tensor > 1 && !on("--sequence-parallel"):
		return fmt.Errorf("experts among %d of %d replicas of %d", experts, data, tensor)
	case strings.Contains(text, "add --num-experts") != p.Predicted.Mixture:
		return errors.New("the model's experts")
	case on("--sequence-parallel") != (p.Predicted.Sequence && tensor > 1):
		return fmt.Errorf("sequence parallelism: %v", p.Predicted.Sequence)
	case context*data*tensor*stages != devicesOf(p):
		return fmt.Errorf("%d ranks are no multiple of %d x %d", devicesOf(p), tensor, stages)
	case number("--global-batch-size") != p.GlobalBatch || p.GlobalBatch%(micro*data) != 0:
		return fmt.Errorf("global batch %d, micro-batch %d x %d", p.GlobalBatch, micro, data)
	case on("--overlap-param-gather") && (!sharded || !on("--overlap-grad-reduce")):
		return errors.New("--overlap-param-gather asks for --use-distributed-optimizer and --overlap-grad-reduce")
	case on("--grad-reduce-in-bf16") && !on("--bf16"):
		return errors.New("--grad-reduce-in-bf16 asks for --bf16")
	case on("--recompute-method") && flags["--recompute-granularity"] != "full":
		return errors.New("--recompute-method asks for --recompute-granularity full")
	case on("--use-megatron-fsdp") && (stages > 1 || !on("--no-gradient-accumulation-fusion") || flags["--ckpt-format"] != "fsdp_dtensor"):
		return errors.New("--use-megatron-fsdp")
	case on("--bf16") != (bf16 || p.Predicted.Precision == "mixed") || on("--grad-reduce-in-bf16") != bf16:
		return fmt.Errorf("precision %s", p.Predicted.Precision)
	case on("--untie-embeddings-and-output-weights") == p.Predicted.Tied:
		return fmt.Errorf("tied weights: %v", p.Predicted.Tied)
	case on("--overlap-grad-reduce") != overlap || on("--overlap-param-gather") != (overlap && sharded):
		return fmt.Errorf("overlap %s", p.Predicted.Overlap)
	}
	return nil
}

// deepSpeedAccepts has the checks of deepspeed/runtime/config.py (_batch_assertion) and of PipelineEngine (ZeRO below 2).
func deepSpeedAccepts(text string, p *planner.Plan) error {
	var c struct {
		Train int `json:"train_batch_size"`
		Micro int `json:"train_micro_batch_size_per_gpu"`
		Steps int `json:"gradient_accumulation_steps"`
		BF16  struct {
			Enabled bool `json:"enabled"`
		} `json:"bf16"`
		Types         map[string]string `json:"data_types"`
		Communication string            `json:"communication_data_type"`
		Zero          struct {
			Stage   int  `json:"stage"`
			Overlap bool `json:"overlap_comm"`
		} `json:"zero_optimization"`
		Evenkeel struct {
			Stages int   `json:"num_pp"`
			Data   int   `json:"num_dp"`
			Tensor int   `json:"num_mp"`
			Tied   []int `json:"tied"`
		} `json:"evenkeel"`
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	k := c.Evenkeel
	dtype := map[string]string{"mixed": "fp32", "bf16": "bf16"}[p.Predicted.Precision]
	switch {
	case c.Train != c.Micro*c.Steps*k.Data || c.Train != p.GlobalBatch:
		return fmt.Errorf("train_batch_size %d is not %d x %d x %d", c.Train, c.Micro, c.Steps, k.Data)
	case k.Stages*k.Data*k.Tensor != devicesOf(p):
		return fmt.Errorf("%d ranks for %d x %d x %d", devicesOf(p), k.Stages, k.Data, k.Tensor)
	case k.Stages > 1 && c.Zero.Stage > 1:
		return fmt.Errorf("ZeRO %d in a pipeline", c.Zero.Stage)
	case (len(k.Tied) == 2) != p.Predicted.Tied || p.Predicted.Tied && (k.Tied[0] != 0 || k.Tied[1] != p.Stages[len(p.Stages)-1].To-1):
		return fmt.Errorf("tied layers %v", k.Tied)
	case c.BF16.Enabled != (dtype != "") || c.Types["grad_accum_dtype"] != dtype || c.Communication != dtype || dtype == "fp32" && c.Zero.Stage == 0:
		return fmt.Errorf("precision %s", p.Predicted.Precision)
	case c.Zero.Overlap != (p.Predicted.Overlap == "on" && c.Zero.Stage > 0 && k.Stages == 1 && k.Data > 1):
		return fmt.Errorf("overlap %s", p.Predicted.Overlap)
	}
	return nil
}

// Without a prediction nothing is switched on; what DeepSpeed cannot overlap is said.
func TestAssumed(t *testing.T) {
	predicted := func(p *planner.Plan, precision, overlap string) *planner.Plan {
		p.Predicted = &planner.Prediction{Precision: precision, Overlap: overlap, Stages: make([]costmodel.StageCost, len(p.Stages))}
		return p
	}
	for i, c := range []struct {
		p    *planner.Plan
		want string // switches of Megatron-LM
	}{
		{even(2, 4, 4, 2), ""},
		{predicted(even(2, 4, 4, 2), "", ""), ""},
		{predicted(even(2, 4, 4, 2), "fp32", "off"), ""},
		{predicted(even(2, 4, 4, 2), "mixed", "off"), "--bf16"},
		{predicted(even(2, 4, 4, 2), "bf16", "off"), "--bf16 --grad-reduce-in-bf16"},
		{predicted(even(2, 4, 4, 2), "fp32", "on"), "--overlap-grad-reduce"},
		{predicted(sharded(even(2, 4, 4, 2), planner.Optimizer), "fp32", "on"), "--overlap-grad-reduce --overlap-param-gather"},
		{predicted(sharded(even(1, 4, 4, 2), planner.Full), "mixed", "on"), "--bf16 --overlap-grad-reduce --overlap-param-gather"},
	} {
		text, _ := write(t, "megatron", c.p, Options{})
		var got []string
		for _, f := range strings.Fields(text) {
			if strings.Contains(f, "bf16") || strings.Contains(f, "--overlap") {
				got = append(got, f)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d: %v, want %s", i, got, c.want)
		}
	}
	tied := predicted(even(2, 4, 4, 2), "fp32", "off")
	tied.Predicted.Tied = true
	for trainer, want := range map[string]string{"megatron": "", "deepspeed": "\"tied\": [\n      0,\n      7\n    ]", "torch": "TIED = True"} {
		text, warnings := write(t, trainer, tied, Options{})
		if !strings.Contains(text, want) || strings.Contains(text, "untie") {
			t.Errorf("%s: %s", trainer, text)
		}
		if said := slices.ContainsFunc(warnings, func(w string) bool {
			return strings.Contains(w, "layers 0 and 7 share weights: give PipelineModule both as TiedLayerSpec")
		}); said != (trainer == "deepspeed") {
			t.Errorf("%s: %v", trainer, warnings)
		}
	}
	selective := even(2, 4, 4, 2)
	for i := range selective.Stages {
		selective.Stages[i].Strategies[0].Selective = true
	}
	if text, _ := write(t, "megatron", selective, Options{EmbeddingLayers: 1, HeadLayers: 1}); !strings.Contains(text, "--recompute-granularity selective\n") || strings.Contains(text, "--recompute-method") {
		t.Error(text)
	}
	if _, err := Write(io.Discard, "deepspeed", selective, Options{}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "8 of 8 layers recompute the core of attention alone; a pipeline recomputes whole layers") {
		t.Error(err)
	}
	// The embedding has no attention, so it matters not.
	selective.Stages[0].Strategies = []planner.Strategy{{From: 0, To: 1, Sharding: planner.Replicated}, {From: 1, To: 4, Sharding: planner.Replicated, Selective: true}}
	if _, err := Write(io.Discard, "megatron", selective, Options{EmbeddingLayers: 1}); err != nil {
		t.Error(err)
	}
	if _, err := Write(io.Discard, "megatron", selective, Options{}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "layer 1 recomputes the core of attention alone, layer 0 does not") {
		t.Error(err)
	}
	one := even(1, 4, 4, 2)
	one.Stages[0].Strategies = []planner.Strategy{{From: 0, To: 1, Sharding: planner.Replicated, Checkpoint: true}, {From: 1, To: 4, Sharding: planner.Replicated, Selective: true}}
	if text, warnings := write(t, "deepspeed", one, Options{}); !strings.Contains(text, "\"selective\": [\n      1,\n      2,\n      3\n    ]") || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "3 of 4 layers recompute the core") }) {
		t.Error(text, warnings)
	}
	if text, _ := write(t, "torch", one, Options{}); !strings.Contains(text, `"from": 1, "to": 4, "tensor": 0, "sharding": "none", "checkpoint": False, "selective": True`) {
		t.Error(text)
	}
	const late = "does it afterwards in a pipeline, and without ZeRO: predict with --for deepspeed"
	said := func(p *planner.Plan) bool {
		_, warnings := write(t, "deepspeed", p, Options{})
		return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, late) })
	}
	if !said(predicted(even(2, 4, 4, 2), "fp32", "on")) || !said(predicted(even(1, 4, 4, 2), "fp32", "on")) || said(predicted(even(1, 4, 4, 2), "fp32", "off")) ||
		said(predicted(sharded(even(1, 4, 4, 2), planner.Optimizer), "fp32", "on")) || said(even(2, 4, 4, 2)) {
		t.Error("wrong warnings of what DeepSpeed does not overlap")
	}
}
