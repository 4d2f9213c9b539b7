// Package stats summarises runs over scenarios and seeds: means and interquartile means
// with stratified bootstrap intervals, performance profiles, hypervolumes of fronts; moving averages.
//
// A stratum is the runs of one scenario; see the Example. The same values give the same intervals.
package stats

import (
	"cmp"
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
	means := make([]float64, resamples)
	total := 0.0
	for _, values := range strata {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		total += sum / float64(len(values)) / float64(len(strata))
	}
	for r := range means {
		for _, values := range strata {
			sum := 0.0
			for range values {
				sum += values[rng.IntN(len(values))]
			}
			means[r] += sum / float64(len(values)) / float64(len(strata))
		}
	}
	return interval(total, means)
}

// IQM returns the mean of the middle half of all runs, each counted alike, with its
// interval by resampling within strata: less sensitive to outliers than the mean, less
// wasteful than the median (Agarwal et al., NeurIPS 2021). The runs at the quartiles count
// with the part of them that lies inside.
func IQM(strata [][]float64) Interval {
	return resample(strata, func(runs []float64) float64 {
		slices.Sort(runs)
		cut := float64(len(runs)) / 4
		sum := 0.0
		for i, v := range runs {
			part := min(float64(i+1), float64(len(runs))-cut) - max(float64(i), cut)
			sum += v * max(part, 0)
		}
		return sum / (float64(len(runs)) - 2*cut)
	})
}

// Profile returns, for every threshold, the share of runs that reach it, with pointwise
// intervals (performance profiles of Dolan and Moré 2002, in the form of Agarwal et al.).
func Profile(strata [][]float64, thresholds []float64) []Interval {
	var shares []Interval
	for _, t := range thresholds {
		shares = append(shares, resample(strata, func(runs []float64) float64 {
			n := 0
			for _, v := range runs {
				if v >= t {
					n++
				}
			}
			return float64(n) / float64(len(runs))
		}))
	}
	return shares
}

// resample returns a statistic of all runs, with its interval by resampling within strata.
// The statistic may reorder what it is given.
func resample(strata [][]float64, statistic func(runs []float64) float64) Interval {
	rng := rand.New(rand.NewPCG(1, uint64(len(strata))))
	all := slices.Concat(strata...)
	drawn, values := make([]float64, 0, len(all)), make([]float64, resamples)
	for r := range values {
		drawn = drawn[:0]
		for _, runs := range strata {
			for range runs {
				drawn = append(drawn, runs[rng.IntN(len(runs))])
			}
		}
		values[r] = statistic(drawn)
	}
	return interval(statistic(all), values)
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

// Hypervolume is the volume of what the points dominate above the reference, all
// objectives to be large: hypervolume by slicing objectives (While et al. 2006), exact.
func Hypervolume(points [][]float64, reference []float64) float64 {
	var inside [][]float64
	for _, p := range points {
		above := make([]float64, len(p))
		for o := range p {
			above[o] = max(p[o]-reference[o], 0)
		}
		inside = append(inside, above)
	}
	return slice(inside, len(reference))
}

// slice is the hypervolume above zero of the first objectives.
func slice(points [][]float64, objectives int) float64 {
	if objectives == 1 {
		most := 0.0
		for _, p := range points {
			most = max(most, p[0])
		}
		return most
	}
	// From the highest slab of the last objective down: only the points that reach a slab
	// count in it.
	sorted := slices.Clone(points)
	last := objectives - 1
	slices.SortFunc(sorted, func(p, q []float64) int { return cmp.Compare(q[last], p[last]) })
	volume := 0.0
	for i := range sorted {
		floor := 0.0
		if i+1 < len(sorted) {
			floor = sorted[i+1][last]
		}
		if height := sorted[i][last] - floor; height > 0 {
			volume += height * slice(sorted[:i+1], last)
		}
	}
	return volume
}
