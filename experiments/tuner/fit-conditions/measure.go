package main

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Every function here takes measured and simulated series alike.

const (
	warmup   = 5    // first steps of a series, left out
	spikeAt  = 0.15 // a step this much beyond the median is a spike, if it is also ...
	spikeMAD = 4    // ... this many (scaled) median deviations beyond
	sampled  = 10   // rounds from one sample of a worker's time to the next
	lags     = 20   // of the autocorrelation, in samples
	slowJob  = 0.2  // median coefficient of variation from which one worker of a job is slow throughout
	burstAt  = 0.15 // a burst exceeds the job's median by this
	workers  = 10   // per job
)

// quantile of unsorted values, linear between them.
func quantile(p float64, values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	at := p * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) || v[i] == v[i+1] {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

func median(values []float64) float64 { return quantile(0.5, values) }

// logSD is the standard deviation of the logarithms of the values above 0.
func logSD(values []float64) float64 {
	var logs []float64
	for _, v := range values {
		if v > 0 {
			logs = append(logs, math.Log(v))
		}
	}
	return stat.StdDev(logs, nil)
}

// spike is how far a step lies above the median, and how far a step had to for that
// series, both relative to it.
type spike struct{ excess, threshold float64 }

// noise is the relative deviation of a series' steps without its spikes, the spikes, and the number
// of steps. The deviation comes from the median absolute deviation, which spikes hardly move.
func noise(s series) (sd float64, spikes []spike, steps int) {
	times := s.times[min(warmup, len(s.times)):]
	m := median(times)
	away := make([]float64, len(times))
	for i, t := range times {
		away[i] = math.Abs(t/m - 1)
	}
	sd = 1.4826 * median(away)
	threshold := max(spikeAt, spikeMAD*sd)
	for _, t := range times {
		if t/m-1 > threshold {
			spikes = append(spikes, spike{t/m - 1, threshold})
		}
	}
	return sd, spikes, len(times)
}

// noises is noise's deviation of every series.
func noises(all []series) []float64 {
	var out []float64
	for _, s := range all {
		if sd, _, _ := noise(s); sd > 0 {
			out = append(out, sd)
		}
	}
	return out
}

// excesses are the spikes of all series.
func excesses(all []series) []float64 {
	var out []float64
	for _, s := range all {
		_, spikes, _ := noise(s)
		for _, k := range spikes {
			out = append(out, k.excess)
		}
	}
	return out
}

// spikeLaw is the share of spikes and the mean of their exponential part. Beyond any threshold an
// exponential is itself again, so that mean is that of excess - threshold, and the share is carried
// from each series' threshold back to least.
func spikeLaw(all []series, least float64) (rate, more float64) {
	count, sum := 0, 0.0
	for _, s := range all {
		_, spikes, _ := noise(s)
		for _, k := range spikes {
			count++
			sum += k.excess - k.threshold
		}
	}
	more = sum / float64(count)
	seen := 0.0 // spikes per unit of rate
	for _, s := range all {
		sd, _, steps := noise(s)
		seen += float64(steps) * math.Exp(-(max(spikeAt, spikeMAD*sd)-least)/more)
	}
	return float64(count) / seen, more
}

// alike is how much the quick noise of the workers of one job differs: the sd of its logarithm
// within a job, root mean square over jobs. Quick is what changes from one sample to the next but
// one (neighbours are pairs of equal values in part of the source).
func alike(all []series) float64 {
	jobs := map[string][]float64{}
	for _, s := range all {
		var steps []float64
		for i := 2; i < len(s.times); i += 2 {
			steps = append(steps, math.Abs(math.Log(s.times[i]/s.times[i-2])))
		}
		jobs[s.group] = append(jobs[s.group], median(steps))
	}
	var squares []float64
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		if sd := logSD(jobs[name]); !math.IsNaN(sd) {
			squares = append(squares, sd*sd)
		}
	}
	return math.Sqrt(stat.Mean(squares, nil))
}

// wandering is the deviation of the log of a worker's time (root mean square over workers), and the
// mean autocorrelation at 0..lags samples.
func wandering(all []series) (sd float64, correlation []float64) {
	correlation = make([]float64, lags+1)
	variance, n := 0.0, 0
	for _, s := range all {
		if len(s.times) <= lags {
			continue
		}
		y := make([]float64, len(s.times))
		for i, t := range s.times {
			y[i] = math.Log(t)
		}
		if v := correlate(y, correlation); v > 0 {
			n++
			variance += v
		}
	}
	floats.Scale(1/float64(n), correlation)
	return math.Sqrt(variance / float64(n)), correlation
}

// correlate adds the autocorrelation of y, from lag 0 on, and returns the variance. A constant y adds nothing.
func correlate(y, correlation []float64) (variance float64) {
	floats.AddConst(-stat.Mean(y, nil), y)
	if variance = floats.Dot(y, y) / float64(len(y)); variance == 0 {
		return 0
	}
	for k := range correlation {
		correlation[k] += floats.Dot(y[k:], y[:len(y)-k]) / float64(len(y)-k) / variance
	}
	return variance
}

// decay fits exp(-lag/rounds) to the autocorrelation by least squares, lag 0 left out.
func decay(correlation []float64) (rounds float64) {
	least := math.Inf(1)
	for tau := 1.0; tau < 2000; tau *= 1.01 {
		dot, square := 0.0, 0.0
		for k := 1; k < len(correlation); k++ {
			e := math.Exp(-float64(k*sampled) / tau)
			dot, square = dot+e*correlation[k], square+e*e
		}
		if loss := square - 2*dot; loss < least {
			least, rounds = loss, tau
		}
	}
	return rounds
}

// slowest is the excess of the one slow worker of ten that gives a coefficient of variation c: the
// others at 1 and it at 1+x have mean 1+x/10 and deviation x/sqrt(10). That is the sample deviation, as
// in the source: its values go up to 3.14, and the other kind ends at 3.
func slowest(c float64) float64 {
	if room := 1/math.Sqrt(workers) - c/workers; room > 0 {
		return c / room
	}
	return math.Inf(1)
}

// burst is a run of iterations in which a job's variation exceeds its median.
type burst struct {
	rounds float64
	excess float64 // of the slow worker, the job's usual variation taken out
	weight float64 // 1 over the job's number of bursts: no job counts for more than another
}

// bursts finds the runs of two iterations and more in jobs without a worker that is slow throughout.
func bursts(all []job) []burst {
	var out []burst
	for _, j := range quietJobs(all) {
		usual := median(j.cov)
		first := len(out)
		sum, n := 0.0, 0
		for i := 0; i <= len(j.cov); i++ {
			if i < len(j.cov) && j.cov[i] > usual+burstAt {
				sum, n = sum+j.cov[i], n+1
				continue
			}
			if n > 1 {
				c := sum / float64(n)
				out = append(out, burst{rounds: float64(n), excess: slowest(math.Sqrt(c*c - usual*usual))})
			}
			sum, n = 0, 0
		}
		for k := range out[first:] {
			out[first+k].weight = 1 / float64(len(out)-first)
		}
	}
	return out
}

// burstLaw is the mean length, the median excess and the sd of its logarithm, this from the quartiles
// because the largest excesses are too uncertain.
func burstLaw(all []burst) (rounds, middle, sigma float64) {
	if len(all) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	x, w, n := make([]float64, len(all)), make([]float64, len(all)), make([]float64, len(all))
	for i, b := range all {
		x[i], w[i], n[i] = b.excess, b.weight, b.rounds
	}
	rounds = stat.Mean(n, w)
	stat.SortWeighted(x, w)
	at := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, x, w) }
	return rounds, at(0.5), math.Log(at(0.75)/at(0.25)) / 1.349
}
