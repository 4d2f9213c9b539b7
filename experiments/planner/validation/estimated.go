package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	tables "evenkeel/experiments/internal/measured"
	"evenkeel/planner"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/estimate"
	"evenkeel/planner/layerprofile"
)

// estimated compares what is estimated from data sheets alone with measurements: layers on six cards (Cephalo), and whole
// iterations of Megatron-DeepSpeed on up to 8 A100 (vTrain).
func estimated(data string, c *command) (string, error) {
	layers, err := estimatedLayers(data + "/cephalo/layer_latency.csv")
	if err != nil {
		return "", err
	}
	runs, err := estimatedRuns(data + "/planner/vtrain/ground_truth_single.csv")
	if err != nil {
		return "", err
	}
	text := layers + runs + "### Memory estimated from a config\n\n| plans | number | mean error | from | to |\n|---|---|---|---|---|\n"
	if err := os.WriteFile(c.file("opt.json"), []byte(opt), 0o600); err != nil {
		return "", err
	}
	for i := range sets[:2] {
		row, err := sets[i].estimatedMemory(c, data+"/planner/sailor")
		if err != nil {
			return "", err
		}
		text += row
	}
	return text, nil
}

// opt is OPT-350M, as Sailor's authors trained it.
const opt = `{"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096, "max_position_embeddings": 2048, "vocab_size": 50272}`

// sheets are the names of data sheets for those of Sailor's devices.
var sheets = strings.NewReplacer("GH-96", "gh200-96g", "RTX-2080", "rtx-2080-ti", "RTX-3090", "rtx-3090", "Titan-RTX", "titan-rtx")

// estimatedMemory predicts the memory of the plans that Sailor's authors ran. (Their times are those of TF32, which the data
// sheets in the catalogue do not have.)
func (s *set) estimatedMemory(c *command, root string) (string, error) {
	plans, err := s.load(c, root)
	if err != nil {
		return "", err
	}
	var off errors
	for _, m := range plans {
		for _, path := range []string{m.plan, m.cluster} {
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, []byte(sheets.Replace(string(text))), 0o600)
			}
			if err != nil {
				return "", err
			}
		}
		x, err := c.check(&m, "--profile", "", "--model", c.file("opt.json"), "--tokens", "2048", "--attention", "eager")
		if err != nil {
			return "", err
		}
		if !slices.Contains(s.odd, m.name) {
			off.add(x.bytes, m.bytes)
		}
	}
	return off.row(s.title), nil
}

// llamas are the shapes of the models whose layers were measured: hidden size, heads, size inside.
var llamas = map[string][3]int{"deepspeedllama_tiny": {2048, 32, 5632}, "deepspeedllama_3b": {3200, 32, 8640}, "deepspeedllama_7b": {4096, 32, 11008}, "deepspeedllama_33b": {6656, 52, 17920}}

var cards = map[string]string{"a100x40": "a100-40g", "a6000": "a6000", "v100x16": "v100", "a10g": "a10g", "t4": "t4"}

// pairs are predictions beside measurements, and the factor by which one of them, the point, corrects all.
type pairs struct {
	predicted, measured []float64
	factor              float64
}

func (p *pairs) add(predicted, measured float64, point bool) {
	p.predicted, p.measured = append(p.predicted, predicted), append(p.measured, measured)
	if point {
		p.factor = measured / predicted
	}
}

// row has the errors before and after the correction.
func (p *pairs) row(name string) string {
	var before, after errors
	for i, x := range p.predicted {
		before.add(x, p.measured[i])
		after.add(x*p.factor, p.measured[i])
	}
	return strings.TrimSuffix(before.row(name), "\n") + fmt.Sprintf(" %.1f%% | %+.1f%% | %+.1f%% |\n", after.mean(), slices.Min(after.all), slices.Max(after.all))
}

const corrected = " | with one point | from | to |\n|---|---|---|---|---|---|---|---|\n"

func estimatedLayers(path string) (string, error) {
	rows, err := tables.Columns(path, "model", "gpu", "seq_len", "dtype", "micro_batch", "layer_fwd_ms", "layer_bwd_ms", "source")
	if err != nil {
		return "", err
	}
	off := map[string]*pairs{}
	for _, r := range rows {
		shape, known := llamas[r[0]]
		card := cards[r[1]]
		if !known || card == "" || r[3] != "float16" || r[7] != "cephalo" {
			continue
		}
		x := numbers(r[2], r[4], r[5], r[6])
		m := &estimate.Model{Name: r[0], Layers: 1, Hidden: shape[0], Heads: shape[1], KV: shape[1], Head: shape[0] / shape[1], Inner: shape[2], Gated: true, Vocabulary: 32000, Longest: 4096}
		p, err := profiled(m, fmt.Sprintf("  - {device: %s, count: 1}\n", card), estimate.Options{Tokens: int(x[0])})
		if err != nil {
			return "", err
		}
		run, ok := p.Layers[1].Curve(card, layerprofile.Degree{Tensor: 1, Machines: 1}).At(int(x[1]))
		if !ok || x[2]+x[3] < 3.3 { // kernels alone were measured: a process cannot issue them so quickly
			continue
		}
		if off[card] == nil {
			off[card] = &pairs{}
		}
		off[card].add(run.Forward+run.Backward, (x[2]+x[3])/1e3, r[0] == "deepspeedllama_7b" && x[0] == 1024 && x[1] == 4)
	}
	text := "### Layers estimated from data sheets\n\nThe point is Llama-7B with 4 samples of 1,024 tokens.\n\n| card | layers | mean error | from | to" + corrected
	for _, card := range []string{"a100-40g", "a6000", "v100", "a10g", "t4"} {
		text += off[card].row(card)
	}
	return text + "\n", nil
}

// row is the number of errors, their mean, and the quickest and the slowest estimate.
func (e *errors) row(name string) string {
	return fmt.Sprintf("| %s | %d | %.1f%% | %+.1f%% | %+.1f%% |\n", name, len(e.all), e.mean(), slices.Min(e.all), slices.Max(e.all))
}

func numbers(texts ...string) (all []float64) {
	for _, t := range texts {
		x, err := strconv.ParseFloat(t, 64)
		if err != nil {
			x = math.NaN()
		}
		all = append(all, x)
	}
	return all
}

func profiled(m *estimate.Model, nodes string, o estimate.Options) (*layerprofile.Profile, error) {
	t, err := topology(nodes)
	if err != nil {
		return nil, err
	}
	o.Weights, o.Gradients, o.Optimizer = 2, 4, 12
	return m.Profile(t, profile.Embedded(), o)
}

func topology(nodes string) (*cluster.Topology, error) {
	return clusterfile.ReadTopology(strings.NewReader("nodes:\n"+nodes), "cluster.yaml", profile.Embedded())
}

// estimatedRuns predicts runs of GPT on NVLink, in 16 bits, whose attention keeps its scores. Stages are of equal lengths.
func estimatedRuns(path string) (string, error) {
	rows, err := tables.Columns(path, "\ufeff# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length", "tensor parallelism", "data parallelism", "pipeline parallelism", "iteration time (ms)")
	if err != nil {
		return "", err
	}
	off, factor := map[[2]int]*pairs{}, 0.0
	for _, r := range rows {
		x := numbers(r...)
		predicted, err := iteration(x)
		if err != nil {
			return "", fmt.Errorf("%v: %w", r, err)
		}
		k := [2]int{int(x[3]), int(x[7])}
		if off[k] == nil {
			off[k] = &pairs{}
		}
		point := slices.Equal(x[:10], []float64{2, 32, 8, 1024, 16, 24, 1024, 1, 2, 1})
		off[k].add(predicted, x[10]/1e3, point)
		if point {
			factor = off[k].factor
		}
	}
	text := "### Iterations estimated from data sheets\n\nThe point is a run of 24 layers of 1,024, two replicas, micro-batches of 8.\n\n| hidden size, tensor degree | runs | mean error | from | to" + corrected
	for _, h := range []int{1024, 2048} {
		every := &pairs{factor: factor}
		for _, t := range []int{1, 2, 4, 8} {
			e := off[[2]int{h, t}]
			e.factor = factor
			text += e.row(fmt.Sprintf("%d, %d", h, t))
			every.predicted, every.measured = append(every.predicted, e.predicted...), append(every.measured, e.measured...)
		}
		text += every.row(fmt.Sprintf("%d, all", h))
	}
	return text + "\n", nil
}

// iteration predicts a run of vTrain: its row of numbers.
func iteration(x []float64) (float64, error) {
	n := func(i int) int { return int(x[i]) }
	m := &estimate.Model{Name: "gpt", Layers: n(5), Hidden: n(3), Heads: n(4), KV: n(4), Head: n(3) / n(4), Inner: 4 * n(3), Vocabulary: 51200, Longest: 1024, Tied: true, Learned: true}
	nodes := fmt.Sprintf("  - {device: a100-80g, count: %d, per_machine: %d, inside: 200GB/s}\n", n(0), n(0))
	p, err := profiled(m, nodes, estimate.Options{Tokens: n(6), Eager: true})
	if err != nil {
		return 0, err
	}
	t, err := topology(nodes)
	if err != nil {
		return 0, err
	}
	j, err := planner.NewJob(p, t, planner.Options{GlobalBatches: []int{n(1)}, States: costmodel.BF16})
	if err != nil {
		return 0, err
	}
	plan := &planner.Plan{Version: planner.Version, Model: "gpt", GlobalBatch: n(1), MicroBatch: n(2) * n(8)}
	for s := range n(9) {
		from, to := 1+s*n(5)/n(9), 1+(s+1)*n(5)/n(9)
		if s == 0 {
			from = 0
		}
		if s == n(9)-1 {
			to = n(5) + 2
		}
		size := n(7) * n(8)
		plan.Stages = append(plan.Stages, planner.Stage{From: from, To: to,
			Groups:     []planner.Group{{Devices: planner.Devices{Device: "a100-80g", First: s * size, Count: size}, Tensor: n(7), MicroBatches: slices.Repeat([]int{n(2)}, n(8))}},
			Strategies: []planner.Strategy{{From: from, To: to, Sharding: planner.Replicated}}})
	}
	predicted, err := j.Predict(plan)
	if predicted == nil {
		return 0, err
	}
	return predicted.Simulated, nil
}
