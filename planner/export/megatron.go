package export

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/planner"
)

// writeMegatron writes the arguments of Megatron-LM that a plan decides, as megatron/training/arguments.py of NVIDIA/Megatron-LM reads
// them at commit 000c4ac2 (the layout: pipeline_parallel_layer_layout.py at 00caa53a). It numbers ranks as plans do: tensor parallelism
// innermost, then data, then pipeline.
func writeMegatron(f *rendering) error {
	f.runs(planner.ScheduleInterleaved)
	r := f.rectangle()
	counts := f.transformerLayers()
	layers := 0
	for _, n := range counts {
		layers += n
	}
	model := ""
	if f.Model != "" {
		model = fmt.Sprintf(" of the model %q", f.Model)
	}
	fmt.Fprintf(f, "# Evenkeel plan%s for Megatron-LM: the arguments that it decides. Add those of the model and the data.\n", model)
	fmt.Fprintf(f, "#   torchrun --nproc-per-node N --nnodes M ... pretrain_gpt.py $(grep -v '^#' FILE) ARGUMENTS\n")
	for _, line := range f.ranks() {
		fmt.Fprintf(f, "# %s\n", line)
	}
	if r.tensor > 1 || f.Context > 1 {
		fmt.Fprintf(f, "# With tensor or context parallelism, devices before Blackwell need CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment.\n")
	}
	fmt.Fprintf(f, "--num-layers %d\n--tensor-model-parallel-size %d\n--pipeline-model-parallel-size %d\n--micro-batch-size %d\n--global-batch-size %d\n",
		layers, r.tensor, r.stages, r.share, f.GlobalBatch)
	f.WriteString(f.megatronSpread(r))
	f.WriteString(f.megatronStages(counts))
	f.WriteString(f.megatronTransfers())
	if selective := f.megatronSelective(); selective != "" {
		f.WriteString(selective)
	} else {
		f.WriteString(f.megatronCheckpoints(counts))
	}
	sharding := f.sharding()
	f.WriteString(f.megatronSharding(r, sharding))
	f.WriteString(f.megatronAssumed(r, sharding))
	f.WriteString(f.megatronTied())
	if f.EmbeddingLayers+f.HeadLayers == 0 {
		f.warn("all %d layers of the plan count as transformer layers; where the first or the last are the embedding or the output, say how many by --embedding-layers and --head-layers", layers)
	}
	return nil
}

// megatronSpread says how replicas divide sequences and experts. At a tensor degree ModelParallelConfig requires sequence parallelism for
// experts that are divided, and MoELayer.forward for all.
func (f *rendering) megatronSpread(r rectangle) string {
	text, sequence, mixture := "", f.Predicted != nil && f.Predicted.Sequence, f.Experts > 1 || f.Predicted != nil && f.Predicted.Mixture
	if f.Context > 1 {
		text += fmt.Sprintf("# Context parallelism wants sequences whose length is a multiple of %d.\n--context-parallel-size %d\n", 2*f.Context, f.Context)
	}
	if mixture {
		text += "# The experts are the model's: add --num-experts and --moe-router-topk.\n"
		if r.tensor > 1 && !sequence {
			f.problem("experts: are trained at tensor degree %d; that goes with sequence parallelism alone: predict with --sequence-parallel", r.tensor)
		}
	}
	if f.Experts > 1 {
		text += fmt.Sprintf("--expert-model-parallel-size %d\n--moe-token-dispatcher-type alltoall\n", f.Experts)
		if r.data%f.Experts != 0 {
			f.problem("experts: are divided among %d replicas, which must divide the %d of every stage", f.Experts, r.data)
		}
	}
	if sequence && r.tensor > 1 {
		text += "--sequence-parallel\n"
	}
	return text
}

// transformerLayers is the number of transformer layers of each stage.
func (f *rendering) transformerLayers() []int {
	last := len(f.Stages) - 1
	head := f.Stages[last].To - f.HeadLayers
	var counts []int
	for _, s := range f.Stages {
		counts = append(counts, max(0, min(s.To, head)-max(s.From, f.EmbeddingLayers)))
	}
	if f.EmbeddingLayers > f.Stages[0].To {
		f.problem("stages[0]: ends before layer %d, the last of the embedding; it cannot be divided", f.EmbeddingLayers-1)
	}
	if head < f.Stages[last].From {
		f.problem("stages[%d]: begins after layer %d, the first of the output; it cannot be divided", last, head)
	}
	return counts
}

// megatronStages says by the simplest argument how many layers each stage has, unless all have the same number.
func (f *rendering) megatronStages(counts []int) string {
	n := len(counts)
	if n == 1 {
		return ""
	}
	if chunks := n / f.Pipeline(); chunks > 1 {
		if slices.Min(counts) == slices.Max(counts) {
			return fmt.Sprintf("--num-layers-per-virtual-pipeline-stage %d\n", counts[0])
		}
		return layout(counts) // a part for each virtual stage, chunk after chunk, as in the plan
	}
	equal, middle := true, true
	for i, c := range counts {
		equal = equal && c == counts[0]
		middle = middle && (i == 0 || i == n-1 || c == counts[1])
	}
	switch {
	case equal && counts[0] > 0:
		return ""
	case n == 2 && counts[0] > 0 && counts[1] > 0:
		return fmt.Sprintf("--decoder-first-pipeline-num-layers %d\n", counts[0])
	case middle && counts[0] > 0 && counts[n-1] > 0 && counts[1] > 0:
		return fmt.Sprintf("--decoder-first-pipeline-num-layers %d\n--decoder-last-pipeline-num-layers %d\n", counts[0], counts[n-1])
	}
	return layout(counts)
}

// layout writes out every layer: E is the embedding, t a transformer layer, L the loss. The short form has a star, which shells expand.
func layout(counts []int) string {
	var stages []string
	for _, c := range counts {
		stages = append(stages, strings.Repeat("t", c))
	}
	return fmt.Sprintf("--pipeline-model-parallel-layout E%sL\n", strings.Join(stages, "|"))
}

// megatronSelective recomputes the core of attention in all transformer layers, or in none.
func (f *rendering) megatronSelective() string {
	end, some := f.Stages[len(f.Stages)-1].To-f.HeadLayers, -1
	for l := f.EmbeddingLayers; l < end && some < 0; l++ {
		if f.strategy(l).Selective {
			some = l
		}
	}
	if some < 0 {
		return ""
	}
	for l := f.EmbeddingLayers; l < end; l++ {
		if !f.strategy(l).Selective {
			f.problem("layer %d recomputes the core of attention alone, layer %d does not; there is one granularity for all layers", some, l)
			break
		}
	}
	return "--recompute-granularity selective\n"
}

// megatronCheckpoints says which layers are recomputed: all, or as many of the first layers of every stage.
func (f *rendering) megatronCheckpoints(counts []int) string {
	all, none, most := true, true, 0
	chosen := make([]int, len(counts))
	end := f.Stages[len(f.Stages)-1].To - f.HeadLayers
	for i, s := range f.Stages {
		gap := -1 // the first layer that keeps its activations; -2: a warning was given
		for l := s.From; l < s.To; l++ {
			recomputed := f.strategy(l).Checkpoint
			switch {
			case l < f.EmbeddingLayers || l >= end:
				if recomputed {
					f.warn("layer %d: Megatron-LM recomputes transformer layers, not the embedding or the output", l)
				}
			case recomputed:
				if chosen[i]++; gap >= 0 {
					f.warn("stages[%d]: layer %d keeps its activations and layer %d does not; Megatron-LM recomputes the first layers of a stage, as many", i, gap, l)
					gap = -2
				}
				none = false
			default:
				all = false
				if gap == -1 {
					gap = l
				}
			}
		}
		most = max(most, chosen[i])
	}
	switch {
	case none:
		return ""
	case all:
		return "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n"
	}
	for i, c := range chosen {
		if want := min(most, counts[i]); c != want {
			f.problem("stages[%d]: %d layers are recomputed; must be %d as in the stage with the most, for there is one number for all stages", i, c, want)
		}
	}
	return fmt.Sprintf("--recompute-granularity full\n--recompute-method block\n--recompute-num-layers %d\n", most)
}

func (f *rendering) megatronSharding(r rectangle, sharding planner.Sharding) string {
	switch sharding {
	case planner.Optimizer:
		return "--use-distributed-optimizer\n"
	case planner.Gradients, planner.Full:
		if r.stages > 1 {
			f.problem("sharding %s with %d stages: Megatron-FSDP goes with tensor, expert and context parallelism, not with a pipeline", sharding, r.stages)
		}
		f.warn("sharding %s is Megatron-FSDP, which wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1", sharding)
		strategy := "optim_grads"
		if sharding == planner.Full {
			strategy = "optim_grads_params"
		}
		return "--use-megatron-fsdp\n--data-parallel-sharding-strategy " + strategy + "\n--use-distributed-optimizer\n--no-gradient-accumulation-fusion\n--ckpt-format fsdp_dtensor\n"
	}
	return ""
}

// megatronAssumed switches on what the prediction assumes. Without --grad-reduce-in-bf16 gradients take 4 bytes under --bf16. Parameters are
// gathered only if they are sharded; one replica exchanges nothing.
func (f *rendering) megatronAssumed(r rectangle, sharding planner.Sharding) string {
	precision, overlap := f.assumes()
	text := map[string]string{planner.PrecisionMixed: "--bf16\n", planner.PrecisionBF16: "--bf16\n--grad-reduce-in-bf16\n"}[precision]
	if overlap && r.data > 1 {
		text += "--overlap-grad-reduce\n"
		if sharding != planner.Replicated {
			text += "--overlap-param-gather\n"
		}
	}
	return text
}

// megatronTransfers keeps interleaved stages from computing while they send, unless the plan's transfers overlap: by default they do.
func (f *rendering) megatronTransfers() string {
	if f.Schedule != planner.ScheduleInterleaved || f.Transfers == planner.TransfersOverlap {
		return ""
	}
	if f.Pipeline() < 3 {
		f.problem("transfers: do not overlap with computing; interleaved on %d devices, they must", f.Pipeline())
	}
	return "--no-overlap-p2p-communication\n"
}

// megatronTied gives the output weights of its own if the prediction assumes so: by default Megatron-LM shares the embedding's.
func (f *rendering) megatronTied() string {
	if f.Predicted == nil || f.Predicted.Tied {
		return ""
	}
	return "# As predicted, the output has weights of its own. Where it shares the embedding's, say so in the layer profile (tied_parameters).\n--untie-embeddings-and-output-weights\n"
}
