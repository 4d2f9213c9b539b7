package stepcost

import (
	"math"
	"slices"
)

// Held says how well a table predicts a length that it does not have.
type Held struct {
	Median float64 `json:"median"`           // median over lengths of the mean relative error of their trials
	Worst  float64 `json:"worst"`            // largest mean relative error
	Length int     `json:"length"`           // the length with that error
	Target int     `json:"target,omitempty"` // its target, with two lengths
}

// HeldOut leaves out each length in turn, except the first and the last (with two lengths, each pair), and predicts its trials from the rest.
// ok is false if fewer than four lengths ran, or if there are so many trials that it would take long.
func HeldOut(t Table) (h Held, ok bool) {
	type shape struct{ length, target int }
	var lengths []shape
	for _, r := range t {
		if n := len(lengths); !r.OutOfMemory && (n == 0 || lengths[n-1] != shape{r.Length, r.Target}) {
			lengths = append(lengths, shape{r.Length, r.Target})
		}
	}
	if len(lengths) < 4 || len(t) > manyTrials || t.Pairs() && len(t) > manyTrials/4 {
		return h, false
	}
	var all []float64
	for _, left := range lengths[1 : len(lengths)-1] {
		var rest, own Table
		for _, r := range t {
			if (shape{r.Length, r.Target}) != left {
				rest = append(rest, r)
			} else if !r.OutOfMemory {
				own = append(own, r)
			}
		}
		seconds, err := predictor(rest)
		if err != nil {
			return h, false
		}
		off := 0.0
		for _, r := range own {
			off += math.Abs(seconds(r)/r.Seconds-1) / float64(len(own))
		}
		if off > h.Worst || h.Length == 0 {
			h.Worst, h.Length, h.Target = off, left.length, left.target
		}
		all = append(all, off)
	}
	slices.Sort(all)
	h.Median = all[len(all)/2]
	return h, true
}

// predictor predicts the seconds of trials from a table.
func predictor(t Table) (func(Trial) float64, error) {
	if t.Pairs() {
		c, err := NewPair(t, 0)
		return func(r Trial) float64 { return c.Seconds(r.Length, r.Target, r.Batch) }, err
	}
	c, err := New(t, 0)
	return func(r Trial) float64 { return c.Seconds(r.Length, r.Batch) }, err
}

const manyTrials = 2000
