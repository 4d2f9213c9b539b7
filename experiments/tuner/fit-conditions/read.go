package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"evenkeel/experiments/internal/measured"
)

// data holds the contents of the files, in the units of their READMEs.
type data struct {
	steps   []series  // cnn_step_ms: one training process each
	jobs    []job     // pai_cross_worker_cov
	workers []series  // pai_minibatch_time: one worker each, every tenth iteration
	sharing []float64 // gavel_colocation: slowdown - 1 of a job that shares its GPU
	windows []window  // bytedance_microbatch_ms, trace ST
	capped  []float64 // powercap_slowdown at 100-150 W: slowdown - 1, below 0 by measuring noise
}

// series is the times of one process, in order.
type series struct {
	group string // device or job
	gpus  int    // in the process, where the file says so
	times []float64
}

// job is the coefficient of variation over ten workers, iteration by iteration.
type job struct{ cov []float64 }

// tiny is the least time: its logarithm must exist.
const tiny = 1e-9

func readData(folder string) (*data, error) {
	d := &data{}
	steps, err := readSeries(filepath.Join(folder, "variability", "cnn_step_ms.csv"), "step", "step_ms", tiny, "device", "precision", "num_gpus", "model")
	if err != nil {
		return nil, err
	}
	d.steps = steps
	jobs, err := readSeries(filepath.Join(folder, "variability", "pai_cross_worker_cov.csv"), "iteration", "cov", 0, "job")
	if err != nil {
		return nil, err
	}
	for _, s := range jobs {
		d.jobs = append(d.jobs, job{s.times})
	}
	if d.workers, err = readSeries(filepath.Join(folder, "variability", "pai_minibatch_time.csv"), "time_index", "batch_time_norm", tiny, "job", "worker"); err != nil {
		return nil, err
	}
	if d.windows, err = readWindows(filepath.Join(folder, "variability", "bytedance_microbatch_ms.csv")); err != nil {
		return nil, err
	}
	if d.sharing, err = readExcess(filepath.Join(folder, "gavel", "gavel_colocation.csv"), "slowdown_a", "ran", 1, 1); err != nil {
		return nil, err
	}
	// 100 W is the lowest cap of the file; from 150 W on there is next to no slowdown.
	d.capped, err = readExcess(filepath.Join(folder, "zeus", "powercap_slowdown.csv"), "slowdown_vs_max_power", "power_limit_w", 100, 150)
	return d, err
}

// readSeries groups the rows by the key columns and orders each group by index. The first
// key is kept as the group. Values below least are an error.
func readSeries(path, index, value string, least float64, keys ...string) ([]series, error) {
	rows, err := measured.Columns(path, append([]string{index, value}, keys...)...)
	if err != nil {
		return nil, err
	}
	type sample struct{ at, value float64 }
	groups := map[string][]sample{}
	first := map[string]series{}
	for i, r := range rows {
		at, err1 := strconv.ParseFloat(r[0], 64)
		v, err2 := strconv.ParseFloat(r[1], 64)
		if err1 != nil || err2 != nil || !(v >= least) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s: row %d: %s %q, %s %q; want numbers, the second at least %g", path, i+2, index, r[0], value, r[1], least)
		}
		key := strings.Join(r[2:], "\x00")
		groups[key] = append(groups[key], sample{at, v})
		s := series{group: r[2]}
		if k := slices.Index(keys, "num_gpus"); k >= 0 {
			if s.gpus, err = strconv.Atoi(r[2+k]); err != nil {
				return nil, fmt.Errorf("%s: row %d: num_gpus: %w", path, i+2, err)
			}
		}
		first[key] = s
	}
	var out []series
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		g := groups[k]
		slices.SortStableFunc(g, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
		s := first[k]
		for _, x := range groups[k] {
			s.times = append(s.times, x.value)
		}
		out = append(out, s)
	}
	return out, nil
}

// readExcess returns value - 1 of the rows whose filter column lies in low..high.
func readExcess(path, value, filter string, low, high float64) ([]float64, error) {
	rows, err := measured.Columns(path, value, filter)
	if err != nil {
		return nil, err
	}
	var out []float64
	for i, r := range rows {
		f, err := strconv.ParseFloat(r[1], 64)
		if err == nil && (f < low || f > high) {
			continue
		}
		v, err2 := strconv.ParseFloat(r[0], 64)
		if err != nil || err2 != nil || !(v > 0) {
			return nil, fmt.Errorf("%s: row %d: %s %q, %s %q; want numbers, the first above 0", path, i+2, value, r[0], filter, r[1])
		}
		out = append(out, v-1)
	}
	return out, nil
}

// neighbours is the most steps between two of a window.
const neighbours = 100

// worker is a place in the pipelines of a job.
type worker struct{ dp, pp int }

// readWindows reads the times of micro-batches, forward and backward together, of the trace without unequal
// lengths. Workers are in order, their steps rising; steps with a
// micro-batch missing are left out.
func readWindows(path string) (out []window, err error) {
	times, size, err := readBatches(path)
	if err != nil {
		return nil, err
	}
	workers := slices.SortedFunc(maps.Keys(times), func(a, b worker) int { return cmp.Or(cmp.Compare(a.dp, b.dp), cmp.Compare(a.pp, b.pp)) })
	for _, w := range workers {
		var open window
		end := func() {
			if len(open) > 1 && size > 1 {
				out = append(out, open)
			}
			open = nil
		}
		last := 0
		for _, step := range slices.Sorted(maps.Keys(times[w])) {
			if step-last > neighbours {
				end()
			}
			if len(times[w][step]) < size {
				continue
			}
			row := make([]float64, size)
			for k := range row {
				row[k] = times[w][step][k]
			}
			open, last = append(open, row), step
		}
		end()
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no neighbouring steps of trace ST", path)
	}
	return out, nil
}

// readBatches reads the times by worker, step and micro-batch, and how many micro-batches a step has.
func readBatches(path string) (times map[worker]map[int]map[int]float64, size int, err error) {
	rows, err := measured.Columns(path, "trace", "dp_rank", "pp_rank", "step", "mb_id", "fwd_ms", "bwd_ms")
	if err != nil {
		return nil, 0, err
	}
	times = map[worker]map[int]map[int]float64{}
	for i, r := range rows {
		if r[0] != "ST" {
			continue
		}
		var n [4]int
		for k := range n {
			if n[k], err = strconv.Atoi(r[1+k]); err != nil || n[k] < 0 || n[k] > 1<<20 {
				return nil, 0, fmt.Errorf("%s: row %d: %q is no rank, step or micro-batch", path, i+2, r[1+k])
			}
		}
		forward, err1 := strconv.ParseFloat(r[5], 64)
		backward, err2 := strconv.ParseFloat(r[6], 64)
		if t := forward + backward; err1 != nil || err2 != nil || !(t > 0) || math.IsInf(t, 0) {
			return nil, 0, fmt.Errorf("%s: row %d: fwd_ms %q, bwd_ms %q; want numbers, together above 0", path, i+2, r[5], r[6])
		}
		w := worker{n[0], n[1]}
		if times[w] == nil {
			times[w] = map[int]map[int]float64{}
		}
		if times[w][n[2]] == nil {
			times[w][n[2]] = map[int]float64{}
		}
		times[w][n[2]][n[3]] = forward + backward
		size = max(size, n[3]+1)
	}
	return times, size, nil
}
