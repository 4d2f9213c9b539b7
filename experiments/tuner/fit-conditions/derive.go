package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"evenkeel/cluster"
)

// parameter is one number of a preset with the measured one.
type parameter struct {
	name      string
	preset    float64
	found     float64
	low, high float64 // 90% bootstrap interval
	source    string
	how       string
}

var resamples = 200

// bootstrap estimates from the units, and the 5% and 95% quantiles of the estimate when the units
// are drawn with replacement. A unit is what was measured independently: a series, a job, a worker, a pair.
func bootstrap[T any](units []T, estimate func([]T) []float64) (found, low, high []float64) {
	found = estimate(units)
	draws := make([][]float64, len(found))
	rng := rand.New(rand.NewPCG(1, 1))
	again := make([]T, len(units))
	for range resamples {
		for i := range again {
			again[i] = units[rng.IntN(len(units))]
		}
		for k, v := range estimate(again) {
			if !math.IsNaN(v) {
				draws[k] = append(draws[k], v)
			}
		}
	}
	for _, d := range draws {
		low, high = append(low, quantile(0.05, d)), append(high, quantile(0.95, d))
	}
	return found, low, high
}

// derive derives every fitted parameter of the presets again.
func derive(d *data) ([]parameter, error) {
	preset := map[string]cluster.Conditions{}
	for _, name := range cluster.Presets() {
		c, err := cluster.Preset(name)
		if err != nil {
			return nil, err
		}
		preset[name] = c
	}
	base := preset["steady"]
	least := base.Spikes.Least
	var params []parameter
	add := func(source, how string, found, low, high []float64, of ...any) {
		for k := range found {
			params = append(params, parameter{of[2*k].(string), of[2*k+1].(float64), found[k], low[k], high[k], source, how})
		}
	}

	middle := median(noises(d.steps))
	f, lo, hi := bootstrap(d.jobs, func(j []job) []float64 { // the variation between workers without step noise
		return []float64{math.Sqrt(max(sq(median(pooled(j)))-sq(middle), 0))}
	})
	add("pai_cross_worker_cov", "root of (median CoV over job and iteration)² - (median step noise)²", f, lo, hi, "bias", base.Bias)

	f, lo, hi = bootstrap(d.steps, func(s []series) []float64 { sd := noises(s); return []float64{median(sd), logSD(sd)} })
	add("cnn_step_ms", "median and log sd over series of 1.4826 x median absolute deviation / median", f, lo, hi,
		"noise.median", base.Noise.Median, "noise.sigma", base.Noise.Sigma)

	f, lo, hi = bootstrap(d.steps, func(s []series) []float64 { r, m := spikeLaw(s, least); return []float64{r, m} })
	add("cnn_step_ms", fmt.Sprintf("exponential law of the steps beyond 1 + max(%.2f, %d deviations), carried back to the preset's least", spikeAt, spikeMAD), f, lo, hi,
		"spikes.rate", base.Spikes.Rate, "spikes.more", base.Spikes.More)

	f, lo, hi = bootstrap(d.workers, func(s []series) []float64 {
		sd, r := wandering(s)
		return []float64{sd, decay(r)}
	})
	add("pai_minibatch_time", "rms over workers of the log time's sd; exponential through the mean autocorrelation, 10 to 200 rounds", f, lo, hi,
		"drift.sd", preset["drift"].Drift.SD, "drift.rounds", preset["drift"].Drift.Rounds)

	f, lo, hi = bootstrap(d.sharing, func(x []float64) []float64 { return []float64{median(above(x, 0)), logSD(x)} })
	sharing := preset["interference"].Episodes[0].Excess
	add("gavel_colocation", "median and log sd of slowdown - 1 over the pairs that ran", f, lo, hi,
		"interference, colocated: excess.median", sharing.Median, "interference, colocated: excess.sigma", sharing.Sigma)

	f, lo, hi = bootstrap(d.jobs, func(j []job) []float64 { a, b, c := burstLaw(bursts(j)); return []float64{a, b, c} })
	e := preset["bursts"].Episodes[0]
	add("pai_cross_worker_cov", "runs of 2 or more iterations above the job's median + 0.15, each job counting once, as one slow worker of ten", f, lo, hi,
		"bursts: rounds", e.Rounds, "bursts: excess.median", e.Excess.Median, "bursts: excess.sigma", e.Excess.Sigma)

	f, lo, hi = bootstrap(d.capped, func(x []float64) []float64 {
		p := above(x, 0)
		return []float64{median(p), math.Log(quantile(0.9, p)/median(p)) / 1.2816} // sigma of a log-normal from its upper half
	})
	c := preset["powercap"].Episodes[0].Excess
	add("powercap_slowdown", "slowdown - 1 at 100 to 150 W where above 0: median, and sigma from median to 90% (below lies measuring noise)", f, lo, hi,
		"powercap: excess.median", c.Median, "powercap: excess.sigma", c.Sigma)
	return params, nil
}

// quietJobs are the jobs without a worker that is slow throughout.
func quietJobs(all []job) []job {
	return slices.DeleteFunc(slices.Clone(all), func(j job) bool { return median(j.cov) > slowJob })
}

// pooled is every iteration of every job.
func pooled(jobs []job) []float64 {
	var out []float64
	for _, j := range jobs {
		out = append(out, j.cov...)
	}
	return out
}

func above(values []float64, least float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= least })
}
