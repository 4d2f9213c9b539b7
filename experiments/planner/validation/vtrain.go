package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// trained is a run of vTrain's set.
type trained struct {
	batch, micro, hidden, heads, layers, sequence, tensor, data, pipeline float64
	seconds                                                               float64
}

const (
	vocabulary = 51200 // Megatron's padded vocabulary of GPT-2; the set does not say
	terms      = 8
)

// features are what a run's seconds are linear in: for each layer and micro-batch a constant, arithmetic, the elements
// of its matrices, those of its attention, the all-reduces of tensor parallelism; once the gradients' all-reduce; the
// head; and a constant.
func (r *trained) features(nccl ncclTimes) (x [terms]float64) {
	n := r.batch/(r.micro*r.data) + r.pipeline - 1
	layers := n * r.layers / r.pipeline
	tokens := r.micro * r.sequence
	x[0] = layers
	x[1] = layers * r.layerWork() / r.tensor
	x[2] = layers * tokens * r.hidden / r.tensor * 1e-9
	x[3] = layers * tokens * r.sequence * r.heads / r.tensor * 1e-9
	x[4] = layers * 4 * nccl.seconds(int(r.tensor), 2*tokens*r.hidden)
	x[5] = nccl.seconds(int(r.data), r.gradients())
	x[6] = n * r.headWork() / r.tensor
	x[7] = 1
	return x
}

// layerWork is the floating-point operations of a layer, there and back, in 10^12.
func (r *trained) layerWork() float64 {
	return 3e-12 * r.micro * r.sequence * (24*r.hidden*r.hidden + 4*r.sequence*r.hidden)
}

func (r *trained) headWork() float64 { return 6e-12 * r.micro * r.sequence * r.hidden * vocabulary }

// gradients is the bytes of the last stage's gradients on a device.
func (r *trained) gradients() float64 {
	return 2 * (12*r.hidden*r.hidden*r.layers/r.pipeline + vocabulary*r.hidden) / r.tensor
}

// ncclTimes are seconds of an all-reduce by devices: measured bytes and seconds, rising.
type ncclTimes map[int][][2]float64

func (t ncclTimes) seconds(devices int, bytes float64) float64 {
	if devices == 1 {
		return 0
	}
	points := t[devices]
	i := slices.IndexFunc(points, func(p [2]float64) bool { return p[0] >= bytes })
	switch {
	case i == 0:
		return points[0][1] * max(0.4, bytes/points[0][0]) // below a megabyte mostly latency
	case i < 0:
		last := points[len(points)-1]
		return last[1] * bytes / last[0]
	}
	a, b := points[i-1], points[i]
	return a[1] + (b[1]-a[1])*(bytes-a[0])/(b[0]-a[0])
}

// vtrain calibrates on all runs but those of one parallel plan, and scores these, plan by plan.
func vtrain(w io.Writer, root string) error {
	runs, err := vtrainRuns(root + "/ground_truth_single.csv")
	if err != nil {
		return err
	}
	nccl, err := vtrainTimes(root + "/trace/a100")
	if err != nil {
		return err
	}
	type plan struct{ tensor, data, pipeline float64 }
	groups := map[plan][]int{}
	var order []plan
	for i, r := range runs {
		p := plan{r.tensor, r.data, r.pipeline}
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], i)
	}
	fmt.Fprintf(w, "### vTrain's %d runs of GPT on 2 to 8 GPUs of a machine\n\n| tensor | data | pipeline | runs | median error %% | 90%% within %% |\n|---|---|---|---|---|---|\n", len(runs))
	var all []float64
	for _, p := range order {
		k := calibrate(runs, nccl, func(r *trained) bool { return r.tensor != p.tensor || r.data != p.data || r.pipeline != p.pipeline })
		var errs []float64
		for _, i := range groups[p] {
			s, err := runs[i].predict(k, nccl)
			if err != nil {
				return err
			}
			errs = append(errs, 100*math.Abs(s/runs[i].seconds-1))
		}
		all = append(all, errs...)
		slices.Sort(errs)
		fmt.Fprintf(w, "| %g | %g | %g | %d | %.1f | %.1f |\n", p.tensor, p.data, p.pipeline, len(errs), errs[len(errs)/2], errs[len(errs)*9/10])
	}
	slices.Sort(all)
	fmt.Fprintf(w, "\nMedian error of all runs %.1f%%, nine in ten within %.1f%%, each plan by what the runs of other plans say.\n", all[len(all)/2], all[len(all)*9/10])
	return nil
}

// calibrate is non-negative least squares of relative errors, by coordinate descent.
func calibrate(runs []trained, nccl ncclTimes, with func(*trained) bool) (k [terms]float64) {
	var gram [terms][terms]float64
	var right [terms]float64
	for i := range runs {
		if !with(&runs[i]) {
			continue
		}
		x := runs[i].features(nccl)
		for a := range x {
			x[a] /= runs[i].seconds
		}
		for a := range x {
			right[a] += x[a]
			for b := range x {
				gram[a][b] += x[a] * x[b]
			}
		}
	}
	for range 5000 {
		for a := range k {
			g := right[a]
			for b := range k {
				g -= gram[a][b] * k[b]
			}
			if gram[a][a] > 0 {
				k[a] = max(0, k[a]+g/gram[a][a])
			}
		}
	}
	return k
}

// predict makes a layer profile of the calibration and prices the run's plan with the planner's cost model.
func (r *trained) predict(k [terms]float64, nccl ncclTimes) (float64, error) {
	tokens := r.micro * r.sequence
	step := k[0] + k[1]*r.layerWork()/r.tensor + k[2]*tokens*r.hidden/r.tensor*1e-9 + k[3]*tokens*r.sequence*r.heads/r.tensor*1e-9 +
		k[4]*4*nccl.seconds(int(r.tensor), 2*tokens*r.hidden)
	layer := func(name string, parameters, step, update float64) layerprofile.Layer {
		return layerprofile.Layer{Name: name, Parameters: parameters, Output: 2 * r.sequence * r.hidden,
			Runs: []layerprofile.Run{{Device: "gpu", Tensor: int(r.tensor), MicroBatch: int(r.micro), Forward: step / 3, Backward: step * 2 / 3, Update: update}}}
	}
	p := &layerprofile.Profile{Model: "gpt"}
	for i := range int(r.layers) {
		p.Layers = append(p.Layers, layer(fmt.Sprint("block", i), 12*r.hidden*r.hidden, step, 0))
	}
	p.Layers = append(p.Layers, layer("head", vocabulary*r.hidden, k[6]*r.headWork()/r.tensor, k[7]))
	if err := p.Finish("vtrain"); err != nil {
		return 0, err
	}
	// The bandwidth at which a ring of the planner's takes as long as was measured.
	bandwidth := 200e9
	if s := k[5] * nccl.seconds(int(r.data), r.gradients()); s > 0 {
		bandwidth = 2 * (r.data - 1) / r.data * r.gradients() / s
	}
	devices := int(r.tensor * r.data * r.pipeline)
	t, err := cluster.ReadTopology(strings.NewReader(fmt.Sprintf("nodes: [{device: gpu, count: %d, per_machine: %d, memory: 1TiB, inside: %.0fB/s}]", devices, devices, bandwidth)), "vtrain", nil)
	if err != nil {
		return 0, err
	}
	job, err := planner.NewJob(p, t, planner.Options{GlobalBatches: []int{int(r.batch)}, Overlap: costmodel.Overlap{Off: true}})
	if err != nil {
		return 0, err
	}
	plan := &planner.Plan{Version: planner.Version, GlobalBatch: int(r.batch), MicroBatch: int(r.micro * r.data)}
	each := int(r.tensor * r.data)
	shares := slices.Repeat([]int{int(r.micro)}, int(r.data))
	for s := range int(r.pipeline) {
		from, to := s*int(r.layers/r.pipeline), (s+1)*int(r.layers/r.pipeline)
		if s == int(r.pipeline)-1 {
			to = len(p.Layers)
		}
		plan.Stages = append(plan.Stages, planner.Stage{From: from, To: to,
			Groups:     []planner.Group{{Devices: planner.Devices{Device: "gpu", First: s * each, Count: each}, Tensor: int(r.tensor), MicroBatches: shares}},
			Strategies: []planner.Strategy{{From: from, To: to, Sharding: planner.Replicated}}})
	}
	got, err := job.Predict(plan)
	if err != nil {
		return 0, err
	}
	return got.Simulated, nil
}

func vtrainRuns(path string) ([]trained, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows := csv.NewReader(f)
	rows.FieldsPerRecord = 11
	records, err := rows.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var runs []trained
	for i, record := range records[1:] {
		var v [11]float64
		for k := range v {
			if v[k], err = strconv.ParseFloat(record[k], 64); err != nil {
				return nil, fmt.Errorf("%s: row %d: %w", path, i+2, err)
			}
		}
		runs = append(runs, trained{v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10] / 1e3})
	}
	return runs, nil
}

func vtrainTimes(folder string) (ncclTimes, error) {
	t := ncclTimes{}
	for devices := 2; devices <= 8; devices++ {
		path := filepath.Join(folder, fmt.Sprintf("AR_GPU%d_1M_1024M_LUT", devices))
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Split(line, ",")
			bytes, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				continue // the header
			}
			ns, err := strconv.ParseFloat(fields[3], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			t[devices] = append(t[devices], [2]float64{bytes, ns / 1e9})
		}
	}
	return t, nil
}
