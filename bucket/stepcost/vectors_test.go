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

// vector is a table with what it predicts.
type vector struct {
	Name       string       `json:"name"`
	Table      Table        `json:"table"`
	Memory     int64        `json:"memory_bytes"`
	Prediction string       `json:"prediction"`
	Tile       int          `json:"tile"`
	Predicts   *Predictions `json:"predicts"`
	Points     []answer     `json:"points"`
}

type answer struct {
	Length  int     `json:"length"`
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"`
	Cap     int     `json:"cap"` // of the length
}

// Python's Costs reads the same file and must answer alike by the predictions.
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
	if len(all) < 3 {
		t.Fatalf("%d cases", len(all))
	}
	for _, v := range all {
		m, err := New(v.Table, v.Memory)
		if err != nil {
			t.Fatal(v.Name, err)
		}
		if m.Smoothed() != v.Prediction || m.Tile() != v.Tile {
			t.Errorf("%s: predicted by %s, tile %d", v.Name, m.Smoothed(), m.Tile())
		}
		if diff := cmp.Diff(v.Predicts, m.Predictions(), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%s: %s", v.Name, diff)
		}
		for _, a := range v.Points {
			if s, c := m.Seconds(a.Length, a.Batch), m.Cap(a.Length); math.Abs(s-a.Seconds) > 1e-9 || c != a.Cap {
				t.Errorf("%s: %+v; got %v s, %d fit", v.Name, a, s, c)
			}
		}
	}
}

func writeVectors(t *testing.T, path string) {
	var all []vector
	for _, c := range []struct {
		name  string
		truth func(tokens float64) float64
	}{
		{"linear in tokens", func(tokens float64) float64 { return .05 + 1e-3*tokens }},
		{"no step below a floor", func(tokens float64) float64 { return max(.5, .05+1e-3*tokens) }},
		{"whole tiles of 256 tokens", func(tokens float64) float64 { return .05 + 1e-3*256*math.Ceil(tokens/256) }},
	} {
		v := vector{Name: c.name, Memory: 1200}
		for _, l := range []int{1, 10, 40, 90, 150, 200} {
			for _, b := range []int{1, 2, 3, 5, 8, 13, 21, 34, 60, 120} {
				trial := Trial{Length: l, Batch: b, Seconds: c.truth(float64(l * b)), PeakBytes: int64(l * b)}
				if trial.OutOfMemory = l*b > 1300; trial.OutOfMemory {
					trial.Seconds, trial.PeakBytes = 0, 0
				}
				v.Table = append(v.Table, trial)
			}
		}
		m, err := New(v.Table, v.Memory)
		if err != nil {
			t.Fatal(err)
		}
		v.Prediction, v.Tile, v.Predicts = m.Smoothed(), m.Tile(), m.Predictions()
		for _, l := range []int{1, 7, 10, 33, 90, 149, 200, 201} {
			for _, b := range []int{1, 4, 19, 70, 200} {
				v.Points = append(v.Points, answer{l, b, m.Seconds(l, b), m.Cap(l)})
			}
		}
		all = append(all, v)
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
