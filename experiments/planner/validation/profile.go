package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	tables "evenkeel/experiments/internal/measured"
	"evenkeel/planner/layerprofile"
)

// readProfile reads Sailor's measurements of a model's layers (github.com/eth-easl/sailor): llm_info.json, and DEVICE/profile.json for
// each device in a folder. Sizes are of one sample, as Sailor takes them. If standIn is given, that device's file is read alone, as GH-96's.
func readProfile(folder, info, model, standIn string) (*layerprofile.Profile, error) {
	var sizes map[string]map[string]map[string]struct { // by model, tensor degree, layer
		Parameters float64 `json:"params_floats"`
		Activation float64 `json:"act_mem_bytes"`
		Output     float64 `json:"act_output_bytes"`
	}
	if err := tables.JSON(info, &sizes); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(folder, cmp.Or(standIn, "*"), "profile.json"))
	if err != nil {
		return nil, err
	}
	p := &layerprofile.Profile{Model: model}
	for _, path := range files {
		device := filepath.Base(filepath.Dir(path))
		if standIn != "" {
			device = "GH-96"
		}
		var times map[string]map[string]map[string][]float64 // forward, backward, update seconds by micro-batch, tensor degree, layer
		if err := tables.JSON(path, &times); err != nil {
			return nil, err
		}
		for _, micro := range slices.Sorted(maps.Keys(times)) {
			for tensor, layers := range times[micro] {
				b, err1 := strconv.Atoi(micro)
				t, err2 := strconv.Atoi(tensor)
				if err1 != nil || err2 != nil {
					return nil, fmt.Errorf("%s: micro-batch %q, tensor degree %q", path, micro, tensor)
				}
				for l := range len(layers) {
					k := strconv.Itoa(l)
					whole, part, x := sizes[model]["1"][k], sizes[model][tensor][k], layers[k]
					if len(x) != 3 {
						return nil, fmt.Errorf("%s: [%s][%s]: layer %d has no three times", path, micro, tensor, l)
					}
					if l == len(p.Layers) {
						p.Layers = append(p.Layers, layerprofile.Layer{Name: "layer" + k, Parameters: whole.Parameters, Output: whole.Output})
					}
					p.Layers[l].Runs = append(p.Layers[l].Runs, layerprofile.Run{Device: device, Tensor: t, MicroBatch: b,
						Forward: x[0], Backward: x[1], Update: x[2], Activation: part.Activation})
				}
			}
		}
	}
	return p, p.Finish(folder)
}
