// Fit-profiles writes the embedded catalogue of cluster/profile from the measured data.
//
//	go run ./experiments/tuner/fit-profiles ../shared/data cluster/profile/catalogue
//
// It reads cephalo/layer_latency.csv, cephalo/peak_memory_gib.csv, cephalo/model_stats.csv,
// gavel/gavel_isolated.csv and planner/sailor/profiles/OPT-350 under the first folder and replaces cephalo.csv, zorse.csv,
// gavel.csv, sailor.csv, series.csv and workloads.csv in the second. devices.csv, sources.csv and
// SOURCES.md are written by hand. The same data gives the same bytes.
//
// The choices, each where it is made below: which of two measurements of a series is kept
// (keepLonger), which cluster's peak memory (choosePeak), what is left out (leftOut,
// models without a name here, Gavel rows that did not run or have no batch).
package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"evenkeel/experiments/internal/measured"
	"evenkeel/experiments/internal/program"
)

// model is what the sources' model names mean here.
type model struct {
	name       string // first part of the workload's name
	layers     int    // layers the measured one stands for
	parameters int64
	unit       string
	heldOut    bool
	sequence   bool // the sequence length is part of the workload
}

// models lists the transformers by the source's name. Layers and parameters are those of
// model_stats.csv, checked in readStats; bert_base and mistral_7b are not in it: theirs
// follow from the source's models/bert_simple.py and models/mistral.py with its
// vocabulary of 49,152 and 2,048 positions.
var models = map[string]model{
	"deepspeedbert_base":   {"bert-base", 12, 162769152, "sequence", false, true},
	"deepspeedbert_large":  {"bert-large", 24, 406174720, "sequence", true, true},
	"deepspeedgpt_1.3b":    {"gpt-1.3b", 24, 1414123520, "sequence", true, true},
	"deepspeedgpt_2.7b":    {"gpt-2.7b", 32, 2774553600, "sequence", true, true},
	"deepspeedgpt_175b":    {"gpt-175b", 96, 175194660864, "sequence", true, true},
	"deepspeedllama_tiny":  {"llama-tiny", 22, 1331783680, "sequence", false, true},
	"deepspeedllama_3b":    {"llama-3b", 26, 3536246400, "sequence", false, true},
	"deepspeedllama_7b":    {"llama-7b", 32, 6878924800, "sequence", true, true},
	"deepspeedllama_33b":   {"llama-33b", 60, 32757271040, "sequence", false, true},
	"mistral_7b":           {"mistral-7b", 32, 7382241280, "sequence", false, true},
	"deepspeedvit_g":       {"vit-g", 48, 1842992010, "image", true, false},
	"deepspeedgpt_test":    {}, // left out: 128 heads of 4, a test of the profiler
	"deepspeedvit_e_toy":   {}, // left out: a cut-down model of unknown depth
	"Gavel LM":             {"lm", 1, 0, "sequence", false, false},
	"Gavel Recommendation": {"recommendation", 1, 0, "user", false, false},
	"Gavel ResNet-50":      {"resnet-50", 1, 25557032, "image", true, false},
	"Sailor OPT-350":       {"opt-350m", 0, 407431168, "sequence", true, true},
}

// devices maps the sources' device names. Gavel's v100 stays apart from Cephalo's
// 16 GB V100: another machine, and whole training steps there, kernel times here.
var devices = map[string]string{
	"a100x40": "a100-40g", "v100x16": "v100-16g", "a10g": "a10g", "a6000": "a6000", "l40s": "l40s", "p40": "p40", "t4": "t4",
	"k80": "k80", "p100": "p100", "v100": "v100",
	"A100-40": "a100-40g", "A100-80": "a100-80g", "GH-96": "gh200-96g", "RTX-2080": "rtx-2080-ti", "RTX-3090": "rtx-3090", "Titan-RTX": "titan-rtx", "V100-16": "v100-16g",
}

var dtypes = map[string]string{"float32": "fp32", "float16": "fp16"}

type key struct{ device, workload string }

// series is one profile on its way into the catalogue.
type series struct {
	key
	source  string // key of sources.csv: the file it goes to
	dtype   string
	model   model
	batches []int
	seconds map[int]float64
	peaks   map[int]int64 // of measured micro-batches only
	cluster string        // the source's tag of the cluster the peaks were measured on
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fit-profiles DATA CATALOGUE")
		os.Exit(2)
	}
	program.Main(func(context.Context) error { return run(os.Args[1], os.Args[2]) })
}

func run(data, out string) error {
	if err := readStats(filepath.Join(data, "cephalo", "model_stats.csv")); err != nil {
		return err
	}
	all, err := readLatency(filepath.Join(data, "cephalo", "layer_latency.csv"))
	if err != nil {
		return err
	}
	peaks, err := readPeaks(filepath.Join(data, "cephalo", "peak_memory_gib.csv"))
	if err != nil {
		return err
	}
	addPeaks(all, peaks)
	gavel, err := readGavel(filepath.Join(data, "gavel", "gavel_isolated.csv"))
	if err != nil {
		return err
	}
	sailor, err := readSailor(filepath.Join(data, "planner", "sailor", "profiles", "OPT-350"))
	if err != nil {
		return err
	}
	all = slices.Concat(all, gavel, sailor)
	slices.SortFunc(all, func(a, b *series) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.workload, b.workload))
	})
	return write(out, all)
}

// readStats checks the layers and parameters above against the source's.
func readStats(path string) error {
	rows, err := measured.Columns(path, "model", "num_layers", "total_parameters")
	if err != nil {
		return err
	}
	for _, r := range rows {
		m := models[r[0]]
		if m.name != "" && (strconv.Itoa(m.layers) != r[1] || strconv.FormatInt(m.parameters, 10) != r[2]) {
			return fmt.Errorf("%s: %s has %s layers and %s parameters, not %d and %d", path, r[0], r[1], r[2], m.layers, m.parameters)
		}
	}
	return nil
}

// readLatency turns one layer's times into the model's: (forward + backward) x layers.
// A micro-batch measured more than once counts with the mean.
func readLatency(path string) ([]*series, error) {
	rows, err := measured.Columns(path, "model", "gpu", "seq_len", "dtype", "micro_batch", "layer_fwd_ms", "layer_bwd_ms", "source")
	if err != nil {
		return nil, err
	}
	type id struct {
		key
		source string
	}
	found := map[id]*series{}
	count := map[*series]map[int]int{}
	for i, r := range rows {
		m, known := models[r[0]]
		dtype, device := dtypes[r[3]], devices[r[1]]
		if !known || dtype == "" || device == "" {
			return nil, fmt.Errorf("%s: row %d: model, dtype or device has no name here: %v", path, i+2, r)
		}
		if m.name == "" {
			continue
		}
		workload := m.name + "-" + dtype
		if m.sequence {
			workload = m.name + "-" + r[2] + "-" + dtype
		}
		batch, err1 := strconv.Atoi(r[4])
		forward, err2 := strconv.ParseFloat(r[5], 64)
		backward, err3 := strconv.ParseFloat(r[6], 64)
		if err1 != nil || err2 != nil || err3 != nil || !(forward+backward > 0) {
			return nil, fmt.Errorf("%s: row %d: %v", path, i+2, r)
		}
		k := id{key{device, workload}, r[7]}
		s := found[k]
		if s == nil {
			s = &series{key: k.key, source: r[7], dtype: dtype, model: m, seconds: map[int]float64{}, peaks: map[int]int64{}}
			found[k], count[s] = s, map[int]int{}
		}
		n := count[s][batch]
		s.seconds[batch] = (s.seconds[batch]*float64(n) + (forward+backward)/1000*float64(m.layers)) / float64(n+1)
		count[s][batch]++
	}
	kept := map[key]*series{}
	for k, s := range found {
		s.batches = slices.Sorted(maps.Keys(s.seconds))
		kept[k.key] = keepLonger(kept[k.key], s)
	}
	return slices.Collect(maps.Values(kept)), nil
}

// keepLonger decides between cephalo and zorse: more micro-batches win, then cephalo.
func keepLonger(a, b *series) *series {
	if a == nil || len(b.batches) > len(a.batches) || len(b.batches) == len(a.batches) && b.source < a.source {
		return b
	}
	return a
}

// readGavel takes whole training steps on one GPU of the authors' physical cluster that
// ran: its simulation figures for Recommendation are bound by the input pipeline.
func readGavel(path string) ([]*series, error) {
	rows, err := measured.Columns(path, "device_type", "model", "local_batch_size", "num_gpus", "source", "ran", "step_time_s")
	if err != nil {
		return nil, err
	}
	found := map[key]*series{}
	var out []*series
	for i, r := range rows {
		m, known := models["Gavel "+r[1]]
		if !known || r[2] == "" || r[3] != "1" || r[4] != "physical" || r[5] != "1" {
			continue
		}
		batch, err1 := strconv.Atoi(r[2])
		seconds, err2 := strconv.ParseFloat(r[6], 64)
		if err1 != nil || err2 != nil || !(seconds > 0) || devices[r[0]] == "" {
			return nil, fmt.Errorf("%s: row %d: %v", path, i+2, r)
		}
		k := key{devices[r[0]], m.name}
		s := found[k]
		if s == nil {
			s = &series{key: k, source: "gavel", dtype: "fp32", model: m, seconds: map[int]float64{}}
			found[k] = s
			out = append(out, s)
		}
		if _, twice := s.seconds[batch]; twice {
			return nil, fmt.Errorf("%s: row %d: measured twice", path, i+2)
		}
		s.seconds[batch] = seconds
	}
	for _, s := range out {
		s.batches = slices.Sorted(maps.Keys(s.seconds))
	}
	return out, nil
}

// readSailor sums the layers of a model that were measured one by one, each at tensor degree 1.
func readSailor(dir string) ([]*series, error) {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []*series
	for _, f := range folders {
		path := filepath.Join(dir, f.Name(), "profile.json")
		var seconds map[int]map[int]map[int][3]float64 // by micro-batch, tensor degree and layer: forward, backward, update
		if devices[f.Name()] == "" {
			return nil, fmt.Errorf("%s: the device has no name here", path)
		}
		if err := measured.JSON(path, &seconds); err != nil {
			return nil, err
		}
		s := &series{key: key{devices[f.Name()], "opt-350m-2048-fp32"}, source: "sailor", dtype: "fp32", model: models["Sailor OPT-350"], seconds: map[int]float64{}}
		for batch, degrees := range seconds {
			for layer := range len(degrees[1]) {
				s.seconds[batch] += degrees[1][layer][0] + degrees[1][layer][1]
			}
		}
		s.batches = slices.Sorted(maps.Keys(s.seconds))
		out = append(out, s)
	}
	return out, nil
}
