package stepcost

import (
	"math"
	"testing"

	"evenkeel/bucket/internal/invented"
)

// Four lengths of one batch each are too few for a fit: what is left out is on the line between its neighbours, by hand.
func TestHeldOut(t *testing.T) {
	table := Table{{Length: 10, Batch: 2, Seconds: 1}, {Length: 20, Batch: 2, Seconds: 2}, {Length: 30, Batch: 2, Seconds: 2.5}, {Length: 50, Batch: 2, Seconds: 4}, {Length: 50, Batch: 4, OutOfMemory: true}}
	h, ok := HeldOut(table)
	// At 20: (1 + 2.5)/2 = 1.75 for 2. At 30: 2 + (4 - 2)/3 = 8/3 for 2.5.
	if !ok || h.Length != 20 || math.Abs(h.Worst-.125) > 1e-9 || math.Abs(h.Median-.125) > 1e-9 {
		t.Errorf("%+v, %v", h, ok)
	}
	table[2].Seconds = 3.5 // 20: 2.25 for 2, 12.5%; 30: 8/3 for 3.5, 23.8%
	if h, _ := HeldOut(table); h.Length != 30 || math.Abs(h.Worst-(1-8./3/3.5)) > 1e-9 {
		t.Errorf("%+v", h)
	}
	if _, ok := HeldOut(table[:3]); ok {
		t.Error("three lengths are too few")
	}
	var clean Table
	for _, l := range []int{100, 200, 400, 800, 1600} {
		for _, b := range []int{1, 2, 4} {
			clean = append(clean, Trial{Length: l, Batch: b, Seconds: invented.A.Seconds(l, b)})
		}
	}
	if h, ok := HeldOut(clean); !ok || h.Worst > 1e-9 {
		t.Errorf("a formula's own table: %+v, %v", h, ok)
	}
}
