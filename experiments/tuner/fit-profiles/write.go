package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// write replaces the generated files of the catalogue.
func write(out string, all []*series) error {
	files := map[string]*bytes.Buffer{}
	add := func(name, header string) *bytes.Buffer {
		if files[name] == nil {
			files[name] = bytes.NewBufferString(header + "\n")
		}
		return files[name]
	}
	heldOut := map[bool]string{false: "train", true: "heldout"}
	workloads := map[string]string{}
	for _, s := range all {
		w := add(s.source+".csv", "device,workload,micro_batch,seconds,peak_bytes")
		peakTo := 0
		for _, b := range s.batches {
			peak := ""
			if n := s.peaks[b]; n > 0 {
				peak, peakTo = strconv.FormatInt(n, 10), b
			}
			fmt.Fprintf(w, "%s,%s,%d,%s,%s\n", s.device, s.workload, b, strconv.FormatFloat(s.seconds[b], 'g', 7, 64), peak)
		}
		side := add("series.csv", "device,workload,source,layers,peak_source,peak_cluster,peak_measured_to")
		peakSource := ""
		if peakTo > 0 {
			peakSource = "cephalo" // the only source with peak memory, for zorse's times too
		}
		fmt.Fprintf(side, "%s,%s,%s,%d,%s,%s,%d\n", s.device, s.workload, s.source, s.model.layers, peakSource, s.cluster, peakTo)
		workloads[s.workload] = fmt.Sprintf("%s,%d,%s,%s,%s\n", s.workload, s.model.parameters, s.model.unit, s.dtype, heldOut[s.model.heldOut])
	}
	for _, n := range slices.Sorted(maps.Keys(workloads)) {
		add("workloads.csv", "workload,parameters,unit,dtype,split").WriteString(workloads[n])
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(out, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
