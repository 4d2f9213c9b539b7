package stepcost

import (
	"math"
	"slices"
)

// Held says how well a table predicts a length that it does not have.
type Held struct {
	Median float64 `json:"median"` // relative error of a length's trials in the mean: of the middle one of the lengths,
	Worst  float64 `json:"worst"`  // and of the worst
	Length int     `json:"length"` // which that is
}

// HeldOut leaves each length between others out in turn, and predicts its trials from the rest. ok is false with fewer than four
// lengths that ran, and where there are so many trials that it would take long.
func HeldOut(t Table) (h Held, ok bool) {
	var lengths []int
	for _, r := range t {
		if n := len(lengths); !r.OutOfMemory && (n == 0 || lengths[n-1] != r.Length) {
			lengths = append(lengths, r.Length)
		}
	}
	if len(lengths) < 4 || len(t) > manyTrials {
		return h, false
	}
	var all []float64
	for _, left := range lengths[1 : len(lengths)-1] {
		var rest, own Table
		for _, r := range t {
			if r.Length != left {
				rest = append(rest, r)
			} else if !r.OutOfMemory {
				own = append(own, r)
			}
		}
		c, err := New(rest, 0)
		if err != nil {
			return h, false
		}
		off := 0.0
		for _, r := range own {
			off += math.Abs(c.Seconds(r.Length, r.Batch)/r.Seconds-1) / float64(len(own))
		}
		if off > h.Worst || h.Length == 0 {
			h.Worst, h.Length = off, left
		}
		all = append(all, off)
	}
	slices.Sort(all)
	h.Median = all[len(all)/2]
	return h, true
}

const manyTrials = 2000
