package agent

import (
	"math/rand/v2"
	"slices"
)

// Interval is a mean with its 95% bootstrap interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Bootstrap returns the mean over strata of their means, with the percentile interval
// of 2,000 resamples within each stratum (Agarwal et al., NeurIPS 2021, use the same
// stratified form). The same values give the same interval.
func Bootstrap(strata [][]float64) Interval {
	const resamples = 2000
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
	slices.Sort(means)
	return Interval{Mean: total, Low: means[resamples*25/1000], High: means[resamples*975/1000-1]}
}
