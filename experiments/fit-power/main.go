// Fit-power writes the power table of the embedded catalogue from the measured data.
//
//	go run ./experiments/fit-power ../shared/data cluster/profile/catalogue
//
// It reads zeus/power_limit_epoch_time.csv under the first folder and replaces power.csv
// in the second. The same data gives the same bytes. Only measurements at the device's
// highest power limit count:
//
//   - busy: of every network the highest average power over its batch sizes, as smaller
//     batches wait for data in between; of these the median.
//   - idle: the lowest average power of all. No device was measured without work, so this
//     is a bound from above: a recommender's batches that leave the device waiting
//     for nearly the whole epoch.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/evenkeel/evenkeel/experiments/internal/measured"
)

// devices maps the catalogue's names to the source's. Its RTX 6000 is in no profile; the
// catalogue's two V100s are apart for their software, not for their chip.
var devices = map[string]string{"p100": "p100", "v100": "v100", "v100-16g": "v100"}

// device holds the measurements of a device at its highest limit so far.
type device struct {
	limit   float64            // watts
	highest map[string]float64 // average watts, by network
	lowest  float64            // average watts
	samples int
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fit-power DATA CATALOGUE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fit-power:", err)
		os.Exit(1)
	}
}

func run(data, out string) error {
	found, err := read(filepath.Join(data, "zeus", "power_limit_epoch_time.csv"))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("device,idle_watts,busy_watts,samples,source\n")
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		d := found[devices[name]]
		if d == nil {
			return fmt.Errorf("%s was not measured", devices[name])
		}
		fmt.Fprintf(&b, "%s,%.1f,%.1f,%d,zeus\n", name, d.lowest, median(slices.Collect(maps.Values(d.highest))), d.samples)
	}
	return os.WriteFile(filepath.Join(out, "power.csv"), b.Bytes(), 0o644)
}

// read groups the measurements by the source's devices.
func read(path string) (map[string]*device, error) {
	rows, err := measured.Columns(path, "device_type", "network", "power_limit_w", "average_power_w")
	if err != nil {
		return nil, err
	}
	found := map[string]*device{}
	for i, r := range rows {
		limit, err1 := strconv.ParseFloat(r[2], 64)
		watts, err2 := strconv.ParseFloat(r[3], 64)
		if err1 != nil || err2 != nil || !(watts > 0) || math.IsInf(watts, 0) || !(limit > 0) {
			return nil, fmt.Errorf("%s: row %d: %v", path, i+2, r)
		}
		d := found[r[0]]
		if d == nil || limit > d.limit {
			d = &device{limit: limit, highest: map[string]float64{}, lowest: watts}
			found[r[0]] = d
		}
		if limit == d.limit {
			d.highest[r[1]] = max(d.highest[r[1]], watts)
			d.lowest = min(d.lowest, watts)
			d.samples++
		}
	}
	return found, nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
