package stepcost

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write internal/vectors/bucket-cost.json anew")

// vector is a table and its fit.
type vector struct {
	Name   string     `json:"name"`
	Table  Table      `json:"table"`
	Fit    [4]float64 `json:"fit"` // a, b, c, d
	Error  float64    `json:"error"`
	Worst  float64    `json:"worst"`
	Points []answer   `json:"points"`
}

type answer struct {
	Length  int     `json:"length"`
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"`
	Cap     int     `json:"cap"` // of the length
}

func answers(t *testing.T, v vector) vector {
	m, err := New(v.Table, 0)
	if err != nil {
		t.Fatal(v.Name, err)
	}
	v.Fit, v.Points = m.time.w, nil
	v.Error, v.Worst = m.Error()
	for _, l := range []int{1, 7, 10, 33, 90, 149, 200, 201} {
		for _, b := range []int{1, 19, 200} {
			v.Points = append(v.Points, answer{l, b, m.Seconds(l, b), m.Cap(l)})
		}
	}
	return v
}

// Python's cost.py fits the same tables and must find the same.
func TestVectors(t *testing.T) {
	const path = "../../internal/vectors/bucket-cost.json"
	if *update {
		writeVectors(t, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 4 {
		t.Fatalf("%d cases", len(all))
	}
	for _, v := range all {
		if diff := cmp.Diff(v, answers(t, v), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%s: %s", v.Name, diff)
		}
	}
}

func writeVectors(t *testing.T, path string) {
	var all []vector
	for _, c := range []struct {
		name  string
		few   int // trials
		truth func(l, n float64) float64
	}{
		{"linear in tokens", 99, func(l, n float64) float64 { return .05 + 1e-3*l*n }},
		{"squares", 99, func(l, n float64) float64 { return .02 + .002*n + 1e-3*l*n + 4e-6*n*l*l }},
		{"no step below a floor", 99, func(l, n float64) float64 { return max(.5, .05+1e-3*l*n) }},
		{"noise", 99, func(l, n float64) float64 { return (.05 + 1e-3*l*n) * (1 + .1*math.Sin(l*n)) }},
		{"one trial", 1, func(l, n float64) float64 { return .05 + 1e-3*l*n }},
		{"three trials", 3, func(l, n float64) float64 { return .05 + 1e-3*l*n }},
	} {
		v := vector{Name: c.name}
		for _, l := range []int{1, 10, 40, 90, 150, 200} {
			for _, b := range []int{1, 2, 5, 13, 34, 120} {
				trial := Trial{Length: l, Batch: b, Seconds: c.truth(float64(l), float64(b)), PeakBytes: int64(l * b)}
				if trial.OutOfMemory = l*b > 1300; trial.OutOfMemory {
					trial.Seconds, trial.PeakBytes = 0, 0
				}
				if len(v.Table) < c.few {
					v.Table = append(v.Table, trial)
				}
			}
		}
		all = append(all, answers(t, v))
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
