package lengths

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// The embedded table: as many values of each as it should have, rising, with the mean and
// deviation that SOURCES.md names.
func TestMeasured(t *testing.T) {
	for name, want := range map[string][2]float64{
		"azure-conversations": {1366, 0.805}, "gsm8k": {96.8, 0.395}, "multi30k": {25.5, 0.310}, "speech": {4.11, 0.570},
	} {
		values := measured[name]
		if len(values) != Bins || !slices.IsSorted(values) || values[0] <= 0 {
			t.Errorf("%s has %d values", name, len(values))
		}
		l := Lengths{Data: name}
		mean, costs := 0.0, l.Costs()
		for _, v := range values {
			mean += v / Bins
		}
		sum, squares := 0.0, 0.0
		for i, c := range costs {
			sum += c
			squares += c * c
			if math.Abs(c*mean-values[i]) > 1e-9*values[i] {
				t.Fatalf("%s: %v costs %v of %v", name, values[i], c, mean)
			}
		}
		if sd := math.Sqrt(squares/Bins - 1); math.Abs(mean-want[0]) > 0.005*want[0] || math.Abs(sd-want[1]) > 0.001 || math.Abs(sum-Bins) > 1e-9 {
			t.Errorf("%s: mean %v, deviation %v, sum %v", name, mean, sd, sum)
		}
		if field, text := l.Fault(); field != "" {
			t.Error(text)
		}
	}
	if len(Names()) != 4 {
		t.Error(Names())
	}
}

func TestCompress(t *testing.T) {
	all := make([]float64, 3*Bins)
	for i := range all {
		all[i] = float64((7*i)%len(all)) + 1 // every number once
	}
	got := Compress(all)
	for k, v := range got {
		if v != float64(3*k+2) {
			t.Fatalf("part %d is %v", k, v)
		}
	}
}

func TestOwn(t *testing.T) {
	l := Lengths{Values: []float64{1, 3, 8}}
	if got := l.Costs(); !slices.Equal(got, []float64{0.25, 0.75, 2}) || !l.Set() {
		t.Error(got)
	}
	if l = (Lengths{}); l.Costs() != nil || l.Set() {
		t.Error("no lengths are some")
	}
	for want, l := range map[string]Lengths{
		"data":      {Data: strings.Repeat("x", 100)},
		"values":    {Values: make([]float64, MaxValues+1)},
		"values[1]": {Values: []float64{1, math.Inf(1)}},
		"values[0]": {Values: []float64{math.NaN()}},
	} {
		if field, text := l.Fault(); field != want || len(text) > 300 {
			t.Errorf("%s: %s %s", want, field, text)
		}
	}
	both := Lengths{Data: "gsm8k", Values: []float64{1}}
	none := Lengths{Values: []float64{}}
	for _, l := range []Lengths{both, none} {
		if field, _ := l.Fault(); field != "values" {
			t.Errorf("%+v: %q", l, field)
		}
	}
}
