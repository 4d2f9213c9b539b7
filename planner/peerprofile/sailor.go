package peerprofile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// sailorTimes are forward, backward and update seconds by micro-batch, tensor degree and layer.
type sailorTimes map[string]map[string]map[string][]float64

// sailorInfo is sizes by model, tensor degree and layer.
type sailorInfo map[string]map[string]map[string]struct {
	Parameters float64 `json:"params_floats"`
	Activation float64 `json:"act_mem_bytes"`
	Output     float64 `json:"act_output_bytes"`
}

// Sailor reads the profiles of a model by Sailor (github.com/eth-easl/sailor): a folder with a folder for each device
// that has a profile.json, and llm_info.json. Sizes are of a sample, as Sailor takes them.
func Sailor(folder, info, model string) (*layerprofile.Profile, error) {
	var sizes sailorInfo
	if err := load(info, &sizes); err != nil {
		return nil, err
	}
	devices, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("peerprofile: %w", err)
	}
	p := &layerprofile.Profile{Model: model}
	found := false
	for _, d := range devices {
		path := filepath.Join(folder, d.Name(), "profile.json")
		if _, err := os.Stat(path); !d.IsDir() || err != nil {
			continue
		}
		var times sailorTimes
		if err := load(path, &times); err != nil {
			return nil, err
		}
		if err := addSailor(p, times, sizes, d.Name(), path, info); err != nil {
			return nil, err
		}
		found = true
	}
	if !found {
		return nil, bad(folder, "no DEVICE/profile.json in it")
	}
	return p, p.Finish(folder)
}

func addSailor(p *layerprofile.Profile, times sailorTimes, sizes sailorInfo, device, path, info string) error {
	for micro, byTensor := range times {
		for tensor, byLayer := range byTensor {
			b, err1 := strconv.Atoi(micro)
			t, err2 := strconv.Atoi(tensor)
			if err1 != nil || err2 != nil {
				return bad(path, "micro-batch %q, tensor degree %q; want numbers", micro, tensor)
			}
			if n := len(sizes[p.Model][tensor]); n > len(byLayer) {
				return bad(path, "[%s][%s]: has times of %d layers, but %s has %d of %s at this degree; measure all of them", micro, tensor, len(byLayer), info, n, p.Model)
			}
			for l := range len(byLayer) {
				k := strconv.Itoa(l)
				x, ok := byLayer[k]
				whole, ok1 := sizes[p.Model]["1"][k]
				part, ok2 := sizes[p.Model][tensor][k]
				if !ok || len(x) != 3 {
					return bad(path, "[%s][%s]: layer %d is missing or has not three times", micro, tensor, l)
				}
				if !ok1 || !ok2 {
					return bad(info, "[%s]: has no sizes of layer %d at tensor degrees 1 and %s", p.Model, l, tensor)
				}
				if l == len(p.Layers) {
					p.Layers = append(p.Layers, layerprofile.Layer{Name: "layer" + k, Parameters: whole.Parameters, Output: whole.Output})
				}
				p.Layers[l].Runs = append(p.Layers[l].Runs, layerprofile.Run{Device: device, Tensor: t, MicroBatch: b,
					Forward: x[0], Backward: x[1], Update: x[2], Activation: part.Activation})
			}
		}
	}
	return nil
}
