package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"evenkeel/experiments/internal/measured"
)

// peakSequence is the sequence length the authors measured peak memory at: the default
// of their profiler. The figures say nothing of longer sequences, so only workloads of
// this length, and images, take them.
const peakSequence = "512"

// peakSeries is the peak memory of one model and dtype on one of the authors' clusters.
type peakSeries struct {
	cluster    string
	parameters int64
	bytes      map[int]int64 // by micro-batch
	last       int           // largest micro-batch
}

type peakKey struct{ model, dtype string }

func readPeaks(path string) (map[peakKey][]*peakSeries, error) {
	rows, err := measured.Columns(path, "cluster", "model", "parameters", "dtype", "micro_batch", "peak_minus_state_gib")
	if err != nil {
		return nil, err
	}
	out := map[peakKey][]*peakSeries{}
	for i, r := range rows {
		m, known := models[r[1]]
		if !known || m.name == "" {
			continue // a model without measured times
		}
		parameters, err1 := strconv.ParseInt(r[2], 10, 64)
		batch, err2 := strconv.Atoi(r[4])
		gib, err3 := strconv.ParseFloat(r[5], 64)
		if err1 != nil || err2 != nil || err3 != nil || !(gib > 0) {
			return nil, fmt.Errorf("%s: row %d: %v", path, i+2, r)
		}
		k := peakKey{m.name, dtypes[r[3]]}
		at := slices.IndexFunc(out[k], func(p *peakSeries) bool { return p.cluster == r[0] })
		if at < 0 {
			at = len(out[k])
			out[k] = append(out[k], &peakSeries{cluster: r[0], parameters: parameters, bytes: map[int]int64{}})
		}
		p := out[k][at]
		p.bytes[batch] = int64(gib * (1 << 30))
		p.last = max(p.last, batch)
	}
	return out, nil
}

// choosePeak picks one cluster's measurement: the one whose parameter count is nearest to
// the model's, then the longest, then the highest at its end (the safe side), then by name.
func choosePeak(m model, found []*peakSeries) *peakSeries {
	far := func(p *peakSeries) int64 {
		// Counts differ by a few hundred thousand (positions, head) for the same model.
		return max(p.parameters-m.parameters, m.parameters-p.parameters) * 50 / m.parameters
	}
	return slices.MinFunc(found, func(a, b *peakSeries) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(len(b.bytes), len(a.bytes)),
			cmp.Compare(b.bytes[b.last], a.bytes[a.last]), cmp.Compare(a.cluster, b.cluster))
	})
}

// addPeaks gives every series of a model and dtype its measured peaks. Peak minus sharded
// state does not depend on the device, so one measurement serves them all.
func addPeaks(all []*series, peaks map[peakKey][]*peakSeries) {
	for _, s := range all {
		found := peaks[peakKey{s.model.name, s.dtype}]
		if len(found) == 0 || s.model.sequence && s.workload != s.model.name+"-"+peakSequence+"-"+s.dtype {
			continue
		}
		p := choosePeak(s.model, found)
		for _, b := range s.batches {
			if bytes, ok := p.bytes[b]; ok {
				s.peaks[b] = bytes
				s.cluster = p.cluster
			}
		}
	}
}
