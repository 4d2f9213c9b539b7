// Package stats summarises runs over scenarios and seeds: means with stratified bootstrap intervals, and moving averages.
//
// A stratum is the runs of one scenario; see the Example. The same values give the same intervals.
package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a value with its 95% bootstrap interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const resamples = 2000

// Bootstrap returns the mean over strata of their means, with the percentile interval
// of 2,000 resamples within each stratum (Agarwal et al., NeurIPS 2021, use the same
// stratified form).
func Bootstrap(strata [][]float64) Interval {
	rng := rand.New(rand.NewPCG(1, uint64(len(strata))))
	mean := func(value func(runs []float64, i int) float64) float64 {
		total := 0.0
		for _, runs := range strata {
			sum := 0.0
			for i := range runs {
				sum += value(runs, i)
			}
			total += sum / float64(len(runs)) / float64(len(strata))
		}
		return total
	}
	means := make([]float64, resamples)
	for r := range means {
		means[r] = mean(func(runs []float64, _ int) float64 { return runs[rng.IntN(len(runs))] })
	}
	return interval(mean(func(runs []float64, i int) float64 { return runs[i] }), means)
}

// Seeds returns a statistic of which seeds were run, with its interval by resampling
// them: for figures that are made of the means of several runs per seed.
func Seeds(count int, statistic func(pick []int) float64) Interval {
	rng := rand.New(rand.NewPCG(1, uint64(count)))
	pick, values := make([]int, count), make([]float64, resamples/10)
	for i := range pick {
		pick[i] = i
	}
	value := statistic(pick)
	for r := range values {
		for i := range pick {
			pick[i] = rng.IntN(count)
		}
		values[r] = statistic(pick)
	}
	return interval(value, values)
}

func interval(value float64, resampled []float64) Interval {
	slices.Sort(resampled)
	n := len(resampled)
	return Interval{Mean: value, Low: resampled[n*25/1000], High: resampled[n*975/1000-1]}
}

// Moving is a moving average of values, and how far single ones are from it. The zero value has seen none.
type Moving struct {
	Mean   float64
	Spread float64 // variance of a value
}

// Add takes in a value, which counts by rate, 0..1, and all before it by the rest (West's recurrence).
func (m *Moving) Add(value, rate float64) {
	off := value - m.Mean
	m.Mean += rate * off
	m.Spread += rate * ((1-rate)*off*off - m.Spread)
}

// Error is the standard error of the mean of independent values that counted by rate.
func (m *Moving) Error(rate float64) float64 { return math.Sqrt(m.Spread * rate / (2 - rate)) }
