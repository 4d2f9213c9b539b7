package peerprofile

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

var (
	galvatronTime   = regexp.MustCompile(`^layernum\[(\d{1,4})\]_bsz(\d{1,6})_seq(\d{1,7})$`)
	galvatronMemory = regexp.MustCompile(`^layernum\[(\d{1,4})\]_bsz(\d{1,6})_seq(\d{1,7})_rank0_(ms|act)$`)
	galvatronKey    = regexp.MustCompile(`^1_(\d{1,4})_(\d{1,4})(_vtp)?(_sp)?$`)
)

// GalvatronSizes are what profiles of Galvatron leave out.
type GalvatronSizes struct {
	Device   string
	Layers   int     // of the model
	Output   float64 // bytes of a sample between layers
	Elements float64 // bytes that a parameter takes with all its states, default 16
}

// Galvatron reads computation_profiling and memory_profiling files (github.com/PKU-DAIR/Hetu-Galvatron) of a model whose
// layers are all alike, at tensor degree 1: a layer is the difference of two numbers of layers, embedding and head
// together are what is left. Times are of the forward pass in milliseconds, memory in MB; at tensor degrees above 1
// Galvatron divides by the degree and adds communication, which it measures apart, so they are not read. Memory is that
// of unsharded data parallelism or, as in its own files, of states sharded over all devices.
func Galvatron(times, memory string, sizes GalvatronSizes) (*layerprofile.Profile, error) {
	var ms map[string]float64
	if err := load(times, &ms); err != nil {
		return nil, err
	}
	var held map[string]json.RawMessage
	if err := load(memory, &held); err != nil {
		return nil, err
	}
	if sizes.Elements == 0 {
		sizes.Elements = 16
	}
	byBatch := map[int]map[int]float64{} // layers -> ms
	for k, v := range ms {
		m := galvatronTime.FindStringSubmatch(k)
		if m == nil && strings.HasPrefix(k, "layertype_") {
			continue // what Galvatron made of the others
		}
		if m == nil {
			return nil, bad(times, "%q: want layernum[N]_bszN_seqN", k)
		}
		n, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[2])
		if byBatch[b] == nil {
			byBatch[b] = map[int]float64{}
		}
		byBatch[b][n] = v
	}
	states, activation, restStates, restActivation, err := galvatronHeld(held, memory)
	if err != nil {
		return nil, err
	}
	block := layerprofile.Layer{Name: "block", Parameters: states / sizes.Elements, Output: sizes.Output}
	ends := layerprofile.Layer{Name: "embedding and head", Parameters: restStates / sizes.Elements}
	for b, v := range byBatch {
		low, high := ends2(v)
		if low == high || b < 1 {
			continue
		}
		each := (v[high] - v[low]) / float64(high-low) / 1e3
		rest := max(0, v[low]/1e3-float64(low)*each)
		block.Runs = append(block.Runs, layerprofile.Run{Device: sizes.Device, Tensor: 1, MicroBatch: b, Forward: max(0, each), Activation: activation})
		ends.Runs = append(ends.Runs, layerprofile.Run{Device: sizes.Device, Tensor: 1, MicroBatch: b, Forward: rest, Activation: restActivation})
	}
	if len(block.Runs) == 0 {
		return nil, bad(times, "no batch size was measured with two numbers of layers")
	}
	p := &layerprofile.Profile{Model: filepath.Base(times)}
	for range sizes.Layers {
		p.Layers = append(p.Layers, layerprofile.Layer{Name: block.Name, Parameters: block.Parameters, Output: block.Output, Runs: slices.Clone(block.Runs)})
	}
	p.Layers = append(p.Layers, ends)
	return p, p.Finish(times)
}

func ends2(v map[int]float64) (low, high int) {
	for n := range v {
		if low == 0 || n < low {
			low = n
		}
		high = max(high, n)
	}
	return low, high
}

// galvatronHeld is the bytes of states and of a sample's activations of a layer and of the rest, at tensor degree 1.
func galvatronHeld(held map[string]json.RawMessage, path string) (states, activation, restStates, restActivation float64, err error) {
	const mb = 1 << 20
	keys := make([]string, 0, len(held))
	for k := range held {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, key := range keys {
		m := galvatronKey.FindStringSubmatch(key)
		if m == nil || m[1] != "1" {
			continue
		}
		replicas, _ := strconv.Atoi(m[2])
		all := map[string]map[int]float64{"ms": {}, "act": {}}
		batch := 0
		var values map[string]float64
		if err := json.Unmarshal(held[key], &values); err != nil {
			return 0, 0, 0, 0, bad(path, "%s: %s", key, err)
		}
		for k, v := range values {
			if m := galvatronMemory.FindStringSubmatch(k); m != nil {
				n, _ := strconv.Atoi(m[1])
				batch, _ = strconv.Atoi(m[2])
				all[m[4]][n] = v * mb
			}
		}
		low, high := ends2(all["ms"])
		if low == high || batch < 1 || replicas < 1 || len(all["act"]) < 2 {
			continue
		}
		share := float64(replicas) / float64(batch) // samples of a device, inverse
		states = (all["ms"][high] - all["ms"][low]) / float64(high-low) * float64(replicas)
		activation = (all["act"][high] - all["act"][low]) / float64(high-low) * share
		restStates = max(0, all["ms"][low]*float64(replicas)-float64(low)*states)
		restActivation = max(0, all["act"][low]*share-float64(low)*activation)
		return max(0, states), max(0, activation), restStates, restActivation, nil
	}
	return 0, 0, 0, 0, bad(path, "no 1_1_N with two numbers of layers in it")
}
