package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"evenkeel/cluster"
)

// The functions of this file derive the preset production: how jobs differ from one another,
// and what the workers of one job do.

const (
	mostSlow = 99   // excess of a straggler, as in the simulator
	leastCov = 0.03 // below it a straggler does not show beside its equals
)

func sq(x float64) float64 { return x * x }

// parts splits the variation over the workers of a quiet job into what is constant, the bias, and
// what changes with time. If the share r of the variance changes, normal and for each worker on its
// own, then over time the squared coefficient of variation has a relative variance of 2/9 (1 - (1-r)²).
// Its relative sd is twice that of the coefficient, which is taken from the quartiles of its logarithm:
// bursts do not move them.
func parts(j job) (constant, changing float64) {
	c := median(j.cov)
	sd := 2 * math.Log(quantile(0.75, j.cov)/quantile(0.25, j.cov)) / 1.349
	r := 1 - math.Sqrt(max(1-sd*sd*(workers-1)/2, 0))
	return c * math.Sqrt(1-r), c * math.Sqrt(r)
}

// levels is the median and log sd over quiet jobs of both parts. In many jobs no constant part is to be
// seen, so its law is that of the upper half; deviations over ten workers differ by chance, which is taken off.
func levels(jobs []job) (bias, biasSD, changing, changingSD float64) {
	var b, v []float64
	for _, j := range quietJobs(jobs) {
		x, y := parts(j)
		b, v = append(b, x), append(v, y)
	}
	const at75, at90 = 0.6745, 1.2816 // standard deviations
	if !(quantile(0.75, b) > 0) {
		return 0, 0, median(v), logSD(v)
	}
	spread := math.Log(quantile(0.9, b)/quantile(0.75, b)) / (at90 - at75)
	bias = quantile(0.75, b) * math.Exp(-at75*spread)
	return bias, math.Sqrt(max(sq(spread)-1/(2*(workers-1.0)), 0)), median(v), logSD(v)
}

// twoSpeeds fits quick exp(-lag/quickRounds) + slow exp(-lag/slowRounds) to an
// autocorrelation by least squares, lag 0 left out; what is missing to 1 is noise.
func twoSpeeds(correlation []float64) (quick, quickRounds, slow, slowRounds float64) {
	least := math.Inf(1)
	for t1 := 4.0; t1 < 100; t1 *= 1.05 {
		for t2 := 3 * t1; t2 < 2000; t2 *= 1.05 {
			var aa, ab, bb, ay, by, yy float64
			for k := 1; k < len(correlation); k++ {
				x, y, z := math.Exp(-float64(k*sampled)/t1), math.Exp(-float64(k*sampled)/t2), correlation[k]
				aa, ab, bb, ay, by, yy = aa+x*x, ab+x*y, bb+y*y, ay+x*z, by+y*z, yy+z*z
			}
			det := aa*bb - ab*ab
			a, b := (ay*bb-by*ab)/det, (by*aa-ay*ab)/det
			if a+b > 1 { // no noise: the best of a = 1 - b
				b = (aa - ay - ab + by) / (aa - 2*ab + bb)
				a = 1 - b
			}
			if a < 0 || b < 0 {
				continue
			}
			if loss := yy - 2*a*ay - 2*b*by + a*a*aa + 2*a*b*ab + b*b*bb; loss < least {
				least, quick, quickRounds, slow, slowRounds = loss, a, t1, b, t2
			}
		}
	}
	return quick, quickRounds, slow, slowRounds
}

// stragglerLaw is of jobs with one worker that is slow throughout: their share, the median and log
// sd over them of its middle excess, and how the log of the excess wanders in one: its sd (the median one) and the
// exponential through its mean autocorrelation, 1 to 20 rounds.
func stragglerLaw(jobs []job) (share, middle, sigma, wander, rounds float64) {
	var level, sds []float64
	correlation := make([]float64, 21)
	for _, j := range jobs {
		m := median(j.cov)
		if m <= slowJob {
			continue
		}
		level = append(level, min(slowest(m), mostSlow))
		y := make([]float64, len(j.cov))
		for i, c := range j.cov {
			y[i] = math.Log(min(slowest(max(c, leastCov)), mostSlow))
		}
		sds = append(sds, math.Sqrt(correlate(y, correlation)))
	}
	least := math.Inf(1)
	for tau := 1.0; tau < 200; tau *= 1.02 {
		loss := 0.0
		for k := 1; k < len(correlation); k++ {
			loss += sq(correlation[k]/float64(len(sds)) - math.Exp(-float64(k)/tau))
		}
		if loss < least {
			least, rounds = loss, tau
		}
	}
	return float64(len(level)) / float64(len(jobs)), median(level), logSD(level), median(sds), rounds
}

// burstRate is the starts of bursts per worker and round in quiet jobs, the mean length, and how the rate differs
// between jobs: the log sd that gives the variance of the counts beyond Poisson's. Runs
// shorter than two are not seen; of geometric lengths those seen are one round longer in the
// mean, and that share is missing.
func burstRate(jobs []job) (rate, rounds, levelSD float64) {
	quiet := quietJobs(jobs)
	all := bursts(jobs)
	rounds, _, _ = burstLaw(all)
	rounds = max(rounds-1, 1)
	in := 0 // iterations in bursts
	for _, b := range all {
		in += int(b.rounds)
	}
	seen := float64(len(all)) / float64(len(pooled(quiet))-in)
	beyond, expected := 0.0, 0.0
	for _, j := range quiet {
		mean := seen * float64(len(j.cov))
		beyond, expected = beyond+sq(float64(len(bursts([]job{j})))-mean)-mean, expected+sq(mean)
	}
	return seen / workers / (1 - 1/rounds), rounds, math.Sqrt(math.Log1p(max(beyond/expected, 0)))
}

// isolated is the share of a worker's samples that lie more than least above the median of those around it,
// which wander with it.
func isolated(all []series, least float64) float64 {
	const around = 10
	count, n := 0, 0
	for _, s := range all {
		for i, t := range s.times {
			n++
			if t > (1+least)*median(s.times[max(i-around, 0):min(i+around+1, len(s.times))]) {
				count++
			}
		}
	}
	return float64(count) / float64(n)
}

// clusters says how spikes come: the chance that a spike follows on another, and the log sd
// over series of their rate, from the variance of the number of runs beyond Poisson's.
func clusters(all []series) (again, levelSD float64) {
	var runs []float64
	followed, follow := 0.0, 0.0
	for _, s := range all {
		sd, _, _ := noise(s)
		times := s.times[min(warmup, len(s.times)):]
		limit := median(times) * (1 + max(spikeAt, spikeMAD*sd))
		begun := 0.0
		for i, t := range times {
			switch after := i > 0 && times[i-1] > limit; {
			case after && t > limit:
				followed, follow = followed+1, follow+1
			case after:
				followed++
			case t > limit:
				begun++
			}
		}
		runs = append(runs, begun)
	}
	mean, variance := stat.PopMeanVariance(runs, nil)
	return follow / followed, math.Sqrt(math.Log1p(max(variance-mean, 0) / sq(mean)))
}

// window is the times of one worker's micro-batches in sampled steps that lie close together: a
// row for each step. What changes from one window to the next is drift.
type window [][]float64

// within splits the variance of the log time over windows: own is what each micro-batch has to
// itself, common what the micro-batches of a step share. A position's mean is taken out.
func within(all []window) (own, common float64) {
	var squares, steps, weight float64
	for _, w := range all {
		a, b := float64(len(w)), float64(len(w[0]))
		row, column, mean := make([]float64, len(w)), make([]float64, len(w[0])), 0.0
		for i := range w {
			for j, t := range w[i] {
				v := math.Log(t) / a / b
				row[i], column[j], mean = row[i]+a*v, column[j]+b*v, mean+v
			}
		}
		between, rest := 0.0, 0.0
		for i := range w {
			between += b * sq(row[i]-mean)
			for j, t := range w[i] {
				rest += sq(math.Log(t) - row[i] - column[j] + mean)
			}
		}
		rest /= (a - 1) * (b - 1)
		squares, steps, weight = squares+(a-1)*rest, steps+(between-(a-1)*rest)/b, weight+a-1
	}
	return squares / weight, steps / weight
}

// ownShare is within as the preset has it. What is common is a difference, which chance can bring
// below 0, and the share above 1.
func ownShare(all []window) float64 {
	own, common := within(all)
	return own / (own + common)
}

// deriveJobs derives the parameters of the preset production again.
func deriveJobs(d *data) ([]parameter, error) {
	p, err := cluster.Preset("production")
	if err != nil {
		return nil, err
	}
	var params []parameter
	add := func(source, how string, found, low, high []float64, of ...any) {
		for k := range found {
			params = append(params, parameter{"production: " + of[2*k].(string), of[2*k+1].(float64), found[k], low[k], high[k], source, how})
		}
	}
	f, lo, hi := bootstrap(d.jobs, func(j []job) []float64 { a, b, _, _ := levels(j); return []float64{a, b} })
	add("pai_cross_worker_cov", "constant part of the variation in jobs without a slow worker: median over jobs and log sd, from the upper half", f, lo, hi, "bias", p.Bias, "job.bias", p.Job.Bias)
	f, lo, hi = bootstrap(d.jobs, func(j []job) []float64 { _, _, a, b := levels(j); return []float64{a, b} })
	add("pai_cross_worker_cov", "the part that changes with time, by how much the variation varies: median over jobs and log sd", f, lo, hi,
		"noise, drift and slow drift together", math.Sqrt(sq(p.Noise.Median)+sq(p.Drift.SD)+sq(p.Drift.SlowSD)), "job.noise", p.Job.Noise)
	changing := f[0]
	f, lo, hi = bootstrap(d.workers, func(s []series) []float64 {
		_, r := wandering(s)
		a, quick, b, slow := twoSpeeds(r)
		return []float64{changing * math.Sqrt(a), quick, changing * math.Sqrt(b), slow, changing * math.Sqrt(max(1-a-b, 0))}
	})
	add("pai_minibatch_time", "two exponentials through the mean autocorrelation, 10 to 200 rounds, as shares of that part; the rest is noise", f, lo, hi,
		"drift.sd", p.Drift.SD, "drift.rounds", p.Drift.Rounds, "drift.slow_sd", p.Drift.SlowSD, "drift.slow_rounds", p.Drift.SlowRounds, "noise.median", p.Noise.Median)
	f, lo, hi = bootstrap(d.workers, func(s []series) []float64 { return []float64{alike(s)} })
	add("pai_minibatch_time", "log sd, within a job, of the workers' quick noise", f, lo, hi, "noise.sigma", p.Noise.Sigma)

	single := slices.DeleteFunc(slices.Clone(d.steps), func(s series) bool { return s.gpus != 1 })
	again, level := math.NaN(), math.NaN()
	if len(single) > 0 {
		f, lo, hi = bootstrap(single, func(s []series) []float64 {
			a, b := clusters(s)
			_, more := spikeLaw(s, p.Spikes.Least)
			return []float64{more, a, b}
		})
		add("cnn_step_ms", "of processes with one GPU: exponential law of the spikes; chance that a spike follows on one; log sd over series of the number of runs beyond Poisson's", f, lo, hi,
			"spikes.more", p.Spikes.More, "spikes.again", p.Spikes.Again, "job.spikes", p.Job.Spikes)
		again, level = f[1], f[2]
	}
	if !math.IsNaN(again + level) {
		f, lo, hi = bootstrap(d.workers, func(s []series) []float64 {
			share := isolated(s, p.Spikes.Least)
			return []float64{share * (1 - again) / (1 - share)}
		})
		add("pai_minibatch_time", "samples above the median of the 21 around them by the preset's least, less those that follow on a spike", f, lo, hi, "spikes.rate", p.Spikes.Rate)
	}

	f, lo, hi = bootstrap(d.jobs, func(j []job) []float64 {
		a, b, c := burstRate(j)
		_, m, s := burstLaw(bursts(j))
		return []float64{a, b, c, m, s}
	})
	e := p.Episodes[0]
	add("pai_cross_worker_cov", "bursts of jobs without a slow worker, corrected for those of one round, which are not seen; log sd over jobs from the counts beyond Poisson's", f, lo, hi,
		"episodes: rate", e.Rate, "episodes: rounds", e.Rounds, "job.episodes", p.Job.Episodes, "episodes: excess.median", e.Excess.Median, "episodes: excess.sigma", e.Excess.Sigma)
	f, lo, hi = bootstrap(d.jobs, func(j []job) []float64 { a, b, c, sd, r := stragglerLaw(j); return []float64{a, b, c, sd, r} })
	k := p.Straggler
	add("pai_cross_worker_cov", "jobs whose median variation exceeds 0.2, as one slow worker of ten: over jobs, and its logarithm over time", f, lo, hi,
		"straggler.chance", k.Chance, "straggler.excess.median", k.Excess.Median, "straggler.excess.sigma", k.Excess.Sigma, "straggler.sd", k.SD, "straggler.rounds", k.Rounds)
	f, lo, hi = bootstrap(d.windows, func(w []window) []float64 { return []float64{ownShare(w)} })
	add("bytedance_microbatch_ms", "trace ST (no unequal lengths), windows of neighbouring steps: share of the variance of the log time that a micro-batch has to itself", f, lo, hi, "noise_within", p.NoiseWithin)
	return params, nil
}
