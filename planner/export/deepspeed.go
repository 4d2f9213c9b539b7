package export

import (
	"encoding/json"
	"fmt"
	"slices"

	"evenkeel/planner"
)

// deepSpeed is a DeepSpeed configuration. Settings that DeepSpeed takes as arguments in Python stand under "evenkeel", a key that it does
// not read.
type deepSpeed struct {
	Train         int               `json:"train_batch_size"`
	Micro         int               `json:"train_micro_batch_size_per_gpu"`
	Accumulation  int               `json:"gradient_accumulation_steps"`
	BF16          map[string]bool   `json:"bf16,omitempty"`
	Types         map[string]string `json:"data_types,omitempty"`
	Communication string            `json:"communication_data_type,omitempty"`
	Zero          zero              `json:"zero_optimization"`
	Tensor        map[string]int    `json:"tensor_parallel,omitempty"`
	Pipeline      map[string]int    `json:"pipeline,omitempty"`
	Evenkeel      arguments         `json:"evenkeel"`
}

type zero struct {
	Stage   int  `json:"stage"`
	Overlap bool `json:"overlap_comm,omitempty"`
}

// arguments are for PipelineModule, PipeModelDataParallelTopology and the model.
type arguments struct {
	Model      string   `json:"model,omitempty"`
	Stages     int      `json:"num_pp"`
	Data       int      `json:"num_dp"`
	Tensor     int      `json:"num_mp"`
	Parts      []int    `json:"parts"`                  // first layer of each stage, then the number of layers
	Checkpoint []int    `json:"checkpointed,omitempty"` // layers that the model must recompute itself
	Selective  []int    `json:"selective,omitempty"`    // layers of which the model must recompute the core of attention
	Tied       []int    `json:"tied,omitempty"`         // layers that share weights
	Ranks      []string `json:"ranks"`
}

// writeDeepSpeed writes a configuration as deepspeed/runtime/config.py reads it at commit 029f12b3 of
// deepspeedai/DeepSpeed (deepspeed/runtime/pipe/module.py: 12e65a6b). Its topology numbers ranks as plans do: pipeline outermost, then data,
// then model.
func writeDeepSpeed(f *rendering) error {
	f.runs()
	for _, x := range []struct {
		name string
		is   bool
	}{{"context", f.Context > 1}, {"experts", f.Experts > 1}, {"predicted.sequence", f.Predicted != nil && f.Predicted.Sequence}} {
		if x.is {
			f.problem("%s: is not in DeepSpeed's configuration", x.name)
		}
	}
	r := f.rectangle()
	c := deepSpeed{Train: f.GlobalBatch, Micro: r.share, Accumulation: f.MicroBatches(),
		Evenkeel: arguments{Model: f.Model, Stages: r.stages, Data: r.data, Tensor: r.tensor, Parts: []int{0}, Ranks: f.ranks()}}
	layers := 0
	for _, s := range f.Stages {
		layers = s.To
		c.Evenkeel.Parts = append(c.Evenkeel.Parts, s.To)
	}
	var recomputed []int
	for l := range layers {
		if f.strategy(l).Selective {
			c.Evenkeel.Selective = append(c.Evenkeel.Selective, l)
		}
		if f.strategy(l).Checkpoint {
			recomputed = append(recomputed, l)
		}
	}
	if f.Predicted != nil && f.Predicted.Tied {
		c.Evenkeel.Tied = []int{0, layers - 1}
	}
	sharding := f.sharding()
	stage := map[planner.Sharding]int{planner.Replicated: 0, planner.Optimizer: 1, planner.Gradients: 2, planner.Full: 3}[sharding]
	c.Zero.Stage = stage
	f.deepSpeedAssumed(&c, r)
	if r.stages > 1 {
		f.deepSpeedPipeline(&c, sharding, layers, len(recomputed))
	} else {
		if r.tensor > 1 {
			c.Tensor = map[string]int{"autotp_size": r.tensor}
		}
		c.Evenkeel.Checkpoint = recomputed
		if n := len(c.Evenkeel.Selective); n > 0 {
			f.warn("%d of %d layers recompute the core of attention alone: the model does that itself, by deepspeed.checkpointing.checkpoint around it; they are listed under evenkeel.selective", n, layers)
		}
		if n := len(recomputed); n > 0 {
			f.warn("%d of %d layers are recomputed: without a pipeline, the model does that itself, by deepspeed.checkpointing.checkpoint around them; they are listed under evenkeel.checkpointed", n, layers)
		}
	}
	e := json.NewEncoder(f)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(c); err != nil {
		return fmt.Errorf("deepspeed: %w", err)
	}
	return nil
}

// deepSpeedAssumed switches on what the prediction assumes. By default DeepSpeed sums and exchanges gradients as weights. A pipeline reduces them
// after its last backward pass (PipelineEngine turns enable_backward_allreduce off), and so does training without ZeRO.
func (f *rendering) deepSpeedAssumed(c *deepSpeed, r rectangle) {
	precision, overlap := f.assumes()
	if dtype, ok := map[string]string{planner.PrecisionMixed: "fp32", planner.PrecisionBF16: "bf16"}[precision]; ok {
		c.BF16, c.Types, c.Communication = map[string]bool{"enabled": true}, map[string]string{"grad_accum_dtype": dtype}, dtype
	}
	if precision == planner.PrecisionMixed && c.Zero.Stage == 0 {
		f.problem("sharding none in mixed precision: without ZeRO, DeepSpeed sums bf16 gradients in 16 bits; shard the optimizer, or predict with --precision bf16")
	}
	switch {
	case !overlap || r.data == 1:
	case c.Zero.Stage > 0 && r.stages == 1:
		c.Zero.Overlap = true
	default:
		f.warn("the prediction assumes that gradients are exchanged during the backward pass; DeepSpeed does it afterwards in a pipeline, and without ZeRO: predict with --for deepspeed")
	}
}

// deepSpeedPipeline sets, or warns of, what a pipeline needs beyond the configuration.
func (f *rendering) deepSpeedPipeline(c *deepSpeed, sharding planner.Sharding, layers, recomputed int) {
	a := &c.Evenkeel
	if stage := c.Zero.Stage; stage > 1 {
		f.problem("sharding %s with %d stages: ZeRO stage %d does not go with a pipeline", sharding, a.Stages, stage)
	}
	if n := len(a.Selective); n > 0 {
		f.problem("%d of %d layers recompute the core of attention alone; a pipeline recomputes whole layers", n, layers)
	}
	switch recomputed {
	case 0:
	case layers:
		c.Pipeline = map[string]int{"activation_checkpoint_interval": 1}
	default:
		f.problem("%d of %d layers are recomputed; a pipeline recomputes all or none", recomputed, layers)
	}
	method := "partition_method='uniform'"
	if !slices.Equal(a.Parts, uniform(layers, a.Stages)) {
		method = "no partition_method gives these stages: override _partition_layers to set self.parts and call self._set_bounds"
	}
	topology := fmt.Sprintf("num_stages=%d", a.Stages)
	if a.Tensor > 1 {
		topology = fmt.Sprintf("topology=PipeModelDataParallelTopology(num_pp=%d, num_mp=%d, num_dp=%d), whose layers divide themselves", a.Stages, a.Tensor, a.Data)
	}
	if a.Tied != nil {
		f.warn("layers %d and %d share weights: give PipelineModule both as TiedLayerSpec with one key", a.Tied[0], a.Tied[1])
	}
	f.warn("the configuration cannot hold the stages; give PipelineModule %s; %s. Layers are cut at %v", topology, method, a.Parts)
}

// uniform is DeepSpeed's partition_uniform: if the layers do not divide evenly, the first stages have one more.
func uniform(layers, stages int) []int {
	parts := []int{0}
	for i := range stages {
		n := layers / stages
		if i < layers%stages {
			n++
		}
		parts = append(parts, parts[i]+n)
	}
	return parts
}
