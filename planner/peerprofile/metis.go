package peerprofile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// MetisSizes are what profiles of Metis leave out.
type MetisSizes struct {
	Output   float64 // bytes of a sample between layers
	Elements float64 // bytes of a parameter, default 4
}

// metisFile is a profile of Metis: one device, tensor degree and batch size.
type metisFile struct {
	Model struct {
		Name       string `json:"model_name"`
		Parameters struct {
			Layers []float64 `json:"parameters_per_layer_bytes"`
		} `json:"parameters"`
	} `json:"model"`
	Time struct {
		Optimizer float64   `json:"optimizer_time_ms"`
		Layers    []float64 `json:"layer_compute_total_ms"`
	} `json:"execution_time"`
	Memory struct {
		Layers []float64 `json:"layer_memory_total_mb"`
	} `json:"execution_memory"`

	path          string
	tensor, batch int
}

var metisName = regexp.MustCompile(`^DeviceType\.(.+)_tp(\d{1,4})_bs(\d{1,6})\.json$`)

// Metis reads a folder of profiles of Metis (github.com/SamsungLabs/Metis), DeviceType.NAME_tpN_bsN.json. Its times are
// of forward and backward pass together: a third is taken as forward. Its memory is of a layer with all its states: the
// activations of a sample are what it grows by with the batch; of a single batch size, what is beyond the parameters.
func Metis(folder string, sizes MetisSizes) (*layerprofile.Profile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("peerprofile: %w", err)
	}
	files := map[string][]metisFile{}
	var devices []string
	for _, e := range entries {
		m := metisName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		f := metisFile{path: filepath.Join(folder, e.Name())}
		if err := load(f.path, &f); err != nil {
			return nil, err
		}
		f.tensor, _ = strconv.Atoi(m[2])
		f.batch, _ = strconv.Atoi(m[3])
		if !slices.Contains(devices, m[1]) {
			devices = append(devices, m[1])
		}
		files[m[1]] = append(files[m[1]], f)
	}
	if len(devices) == 0 {
		return nil, bad(folder, "no DeviceType.NAME_tpN_bsN.json in it")
	}
	if sizes.Elements == 0 {
		sizes.Elements = 4
	}
	p := &layerprofile.Profile{}
	for _, d := range devices {
		for _, f := range files[d] {
			if err := addMetis(p, f, files[d], d, sizes); err != nil {
				return nil, err
			}
		}
	}
	return p, p.Finish(folder)
}

func addMetis(p *layerprofile.Profile, f metisFile, all []metisFile, device string, sizes MetisSizes) error {
	n := len(f.Time.Layers)
	if n == 0 || len(f.Memory.Layers) != n || len(f.Model.Parameters.Layers) != n {
		return bad(f.path, "layer_compute_total_ms has %d layers, layer_memory_total_mb %d, parameters_per_layer_bytes %d; want as many each, at least one",
			n, len(f.Memory.Layers), len(f.Model.Parameters.Layers))
	}
	if p.Layers == nil {
		p.Model = f.Model.Name
		for l, b := range f.Model.Parameters.Layers {
			p.Layers = append(p.Layers, layerprofile.Layer{Name: fmt.Sprintf("layer%d", l), Parameters: b / sizes.Elements, Output: sizes.Output})
		}
	}
	if len(p.Layers) != n {
		return bad(f.path, "has %d layers; an earlier file has %d", n, len(p.Layers))
	}
	for l := range n {
		const mb = 1 << 20
		activation := max(0, f.Memory.Layers[l]*mb-f.Model.Parameters.Layers[l]/float64(f.tensor)) / float64(f.batch)
		for _, o := range all {
			if o.tensor == f.tensor && o.batch > f.batch && l < len(o.Memory.Layers) {
				activation = max(0, (o.Memory.Layers[l]-f.Memory.Layers[l])*mb/float64(o.batch-f.batch))
				break
			}
		}
		seconds := f.Time.Layers[l] / 1e3
		p.Layers[l].Runs = append(p.Layers[l].Runs, layerprofile.Run{Device: device, Tensor: f.tensor, MicroBatch: f.batch,
			Forward: seconds / 3, Backward: seconds * 2 / 3, Update: f.Time.Optimizer / 1e3 / float64(n), Activation: activation})
	}
	return nil
}
