package peerprofile

import (
	"cmp"
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
		ForwardBackward float64   `json:"forward_backward_time_ms"`
		LayerNorms      float64   `json:"layernorm_grads_all_reduce_time_ms"`
		Embeddings      float64   `json:"embedding_grads_all_reduce_time_ms"`
		Optimizer       float64   `json:"optimizer_time_ms"`
		Layers          []float64 `json:"layer_compute_total_ms"`
	} `json:"execution_time"`
	Memory struct {
		Layers []float64 `json:"layer_memory_total_mb"`
	} `json:"execution_memory"`

	path          string
	tensor, batch int
}

var metisName = regexp.MustCompile(`^DeviceType\.(.+)_tp(\d{1,4})_bs(\d{1,6})\.json$`)

// metisStates is the bytes of a parameter with gradient and optimizer state, in mixed precision as in full.
const metisStates = 16

// Metis reads a folder of profiles of Metis (github.com/SamsungLabs/Metis), DeviceType.NAME_tpN_bsN.json. Nothing that was measured is
// left out:
//
//   - Layers' times are of forward and backward pass together: a third is taken as forward. What forward_backward_time_ms has beyond
//     their sum goes to the last layer, where Metis counts it, too (cost_estimator.py, fb_sync). The batch generator is part of it.
//   - The optimizer's time and that of the embeddings' and layer norms' all-reduce is divided equally over the layers' updates.
//   - A layer's memory is the states of its parameters, 16 bytes each, activations that grow with the batch (of a single batch size,
//     all else), and what is left, however large the batch is.
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
		slices.SortFunc(files[d], func(a, b metisFile) int { return cmp.Or(a.tensor-b.tensor, a.batch-b.batch) })
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
	rest, err := f.rest()
	if err != nil {
		return err
	}
	if f.Time.ForwardBackward == 0 {
		p.Warnings = append(p.Warnings, f.path+": no forward_backward_time_ms: what a step takes beside its layers is not in the profile")
	}
	for l := range n {
		seconds := f.Time.Layers[l] / 1e3
		if l == n-1 {
			seconds += rest
		}
		activation, fixed := f.memory(all, l, p.Layers[l].Parameters)
		p.Layers[l].Runs = append(p.Layers[l].Runs, layerprofile.Run{Device: device, Tensor: f.tensor, MicroBatch: f.batch, Forward: seconds / 3, Backward: seconds * 2 / 3,
			Update: (f.Time.Optimizer + f.Time.LayerNorms + f.Time.Embeddings) / 1e3 / float64(n), Activation: activation, Fixed: fixed})
	}
	return nil
}

// rest is the seconds of forward and backward pass beyond those of the layers.
func (f *metisFile) rest() (float64, error) {
	sum := 0.0
	for _, ms := range f.Time.Layers {
		sum += ms
	}
	if whole := f.Time.ForwardBackward; whole != 0 && whole < 0.99*sum {
		return 0, bad(f.path, "forward_backward_time_ms is %v, but the layers' times sum to %v; measure again", whole, sum)
	}
	return max(0, f.Time.ForwardBackward-sum) / 1e3, nil
}

// memory is the bytes of a layer's activations for a sample, and of what it holds beside them and its parameters' states. Activations
// are what memory grows by to the next larger batch size, or else from the next smaller.
func (f *metisFile) memory(all []metisFile, layer int, parameters float64) (activation, fixed float64) {
	const mb = 1 << 20
	free := max(0, f.Memory.Layers[layer]*mb-metisStates*parameters/float64(f.tensor))
	most := free / float64(f.batch)
	activation = most
	for _, o := range all {
		if o.tensor == f.tensor && o.batch != f.batch && layer < len(o.Memory.Layers) {
			activation = max(0, min(most, (o.Memory.Layers[layer]-f.Memory.Layers[layer])*mb/float64(o.batch-f.batch)))
			if o.batch > f.batch {
				break
			}
		}
	}
	return activation, free - activation*float64(f.batch)
}
