package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// line is a least-squares fit y = slope x + base.
type line struct{ slope, base float64 }

func (l line) at(x float64) float64 { return l.slope*x + l.base }

// fit returns the least-squares line through points.
func fit(points map[float64]float64) line {
	n, sx, sy := float64(len(points)), 0.0, 0.0
	xs := slices.Sorted(maps.Keys(points)) // the same bits every time
	for _, x := range xs {
		sx, sy = sx+x, sy+points[x]
	}
	var cross, square float64
	for _, x := range xs {
		cross += (x - sx/n) * (points[x] - sy/n)
		square += (x - sx/n) * (x - sx/n)
	}
	slope := cross / square
	return line{slope, (sy - slope*sx) / n}
}

// ends is the memory, in MB, of the vocabulary layers in a stage, by degree: model states and activations per sample.
type ends struct {
	ModelStates map[int]float64 `json:"model_states"`
	Activation  map[int]float64 `json:"activation"`
}

// collective is the time of a collective operation among so many devices: as measured at some sizes, in between and
// beyond by the line through them.
type collective struct {
	line
	measured map[float64]float64 // ms by MB
}

func (c collective) at(size float64) float64 {
	if v, ok := c.measured[size]; ok {
		return v
	}
	return c.line.at(size)
}

// group is devices of an all-reduce: how many, and whether their numbers follow one another.
type group struct{ devices, consecutive int }

// profile is what Galvatron measured of a model and of one machine: milliseconds and MB.
type profile struct {
	forward, vocabulary line            // forward ms of so many samples: of a layer, of the vocabulary layers
	parameters          float64         // MB of a layer
	activation          map[int]float64 // MB of a layer and sample by tensor or sequence degree; 0: checkpointed
	whole, first, last  ends            // vocabulary layers without a pipeline, and in its first and last stage
	reduce              map[group]float64
	p2p                 map[int]float64    // ms per MB by pipeline degree
	slowdown            float64            // of computation and communication that overlap
	gather, exchange    map[int]collective // all-gather and all-to-all, by devices
}

// readProfile reads the JSON files of a folder with configs/ and hardware_configs/.
func readProfile(dir, model string, sequence int) (*profile, error) {
	p := &profile{activation: map[int]float64{}, reduce: map[group]float64{}, p2p: map[int]float64{}}
	r := &reader{dir: dir, machine: "1nodes_8gpus_per_node.json"}
	var times map[string]float64
	r.json(&times, "configs", "computation_profiling_bf16_"+model+"_all.json")
	p.forward, p.vocabulary = r.samples(times, "layertype_0_", sequence), r.samples(times, "layertype_other_", sequence)
	r.memory(p, model, strconv.Itoa(sequence))
	var coefficient map[string]float64
	r.json(&coefficient, "hardware_configs", "overlap_coefficient.json")
	p.slowdown = coefficient["overlap_coe"]
	var bandwidth map[string]float64
	r.json(&bandwidth, "hardware_configs", "allreduce_bandwidth_"+r.machine)
	for key, v := range bandwidth {
		var n, consecutive int
		if _, err := fmt.Sscanf(key, "allreduce_size_%d_consec_%d", &n, &consecutive); err != nil {
			return nil, fmt.Errorf("galvatron: all-reduce bandwidth %q: %w", key, err)
		}
		p.reduce[group{n, consecutive}] = 1 / v
	}
	var between map[string]float64
	r.json(&between, "hardware_configs", "p2p_bandwidth_"+r.machine)
	for key, v := range between {
		n, err := strconv.Atoi(strings.TrimPrefix(key, "pp_size_"))
		if err != nil {
			return nil, fmt.Errorf("galvatron: bandwidth between stages %q: %w", key, err)
		}
		p.p2p[n] = 1 / v
	}
	times = nil
	r.json(&times, "hardware_configs", "sp_time_"+r.machine)
	p.gather = readCollective(times, "allreduce_size_%d_%dMB_time", 0.5)
	p.exchange = readCollective(times, "all2all_size_%d_%dMB_time", 1)
	return p, r.err
}

// reader keeps the first error.
type reader struct {
	dir, machine string
	err          error
}

func (r *reader) json(v any, parts ...string) {
	if r.err != nil {
		return
	}
	path := filepath.Join(append([]string{r.dir}, parts...)...)
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		r.err = fmt.Errorf("galvatron: %s: %w", path, err)
	}
}

// samples fits the forward time of so many samples; the file has it per sample.
func (r *reader) samples(times map[string]float64, prefix string, sequence int) line {
	points := map[float64]float64{}
	for key, v := range times {
		var b, s int
		rest, ok := strings.CutPrefix(key, prefix)
		if _, err := fmt.Sscanf(rest, "bsz%d_seq%d", &b, &s); ok && err == nil && s == sequence {
			points[float64(b)] = v * float64(b)
		}
	}
	if r.err == nil && len(points) < 2 {
		r.err = fmt.Errorf("galvatron: fewer than two times of %s with sequences of %d", prefix, sequence)
	}
	return fit(points)
}

// memory reads the memory of a layer and of the vocabulary layers, with sequence parallelism beside tensor parallelism.
func (r *reader) memory(p *profile, model, sequence string) {
	var file map[string]json.RawMessage
	r.json(&file, "configs", "memory_profiling_bf16_"+model+"_all.json")
	var layer map[string]struct {
		Parameters float64            `json:"parameter_size"`
		Activation map[string]float64 `json:"tp_activation_per_bsz_dict"`
	}
	var whole, first, last map[string]ends
	for key, v := range map[string]any{"layertype_0_sp": &layer, "other_memory_pp_off_sp": &whole,
		"other_memory_pp_on_first_sp": &first, "other_memory_pp_on_last_sp": &last} {
		if err := json.Unmarshal(file[key], v); err != nil && r.err == nil {
			r.err = fmt.Errorf("galvatron: memory of %s: %s: %w", model, key, err)
		}
	}
	p.parameters = layer[sequence].Parameters
	for key, v := range layer[sequence].Activation {
		degree, _ := strconv.Atoi(key) // "checkpoint": 0
		p.activation[degree] = v
	}
	p.whole, p.first, p.last = whole[sequence], first[sequence], last[sequence]
}

// readCollective reads the times of a collective, times a share, by the number of devices.
func readCollective(times map[string]float64, format string, share float64) map[int]collective {
	all := map[int]collective{}
	for key, v := range times {
		var n, size int
		if _, err := fmt.Sscanf(key, format, &n, &size); err != nil {
			continue
		}
		if all[n].measured == nil {
			all[n] = collective{measured: map[float64]float64{}}
		}
		all[n].measured[float64(size)] = v * share
	}
	for n, c := range all {
		all[n] = collective{fit(c.measured), c.measured}
	}
	return all
}
