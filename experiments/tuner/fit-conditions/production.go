package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat"

	"evenkeel/cluster"
)

// production is what the preset of that name gives.
type production struct {
	jobs                []job
	measured, simulated []float64     // autocorrelation of a worker's time
	low, high           []float64     // 90% bootstrap of the measured one, over workers
	spread              [2][2]float64 // 90% interval of the two distances, of all jobs and of those without a slow worker
	halves              [2]float64    // the distances to half of the jobs, fitted to the others; the larger of both ways
	between             [2]float64    // from one half of the measured jobs to the other
}

const (
	jobRounds  = 600 // the measured jobs have 200 to 2,000
	walkRounds = 3000
)

// effort is how many jobs are simulated: for the variation, and for the correlation.
var effort = struct{ jobs, walks int }{150, 40}

// jobsOf measures the variation over the workers of each fleet.
func jobsOf(fleets [][]series) []job {
	out := make([]job, len(fleets))
	for i := range fleets {
		out[i].cov = variation(fleets[i : i+1])
	}
	return out
}

func playProduction(ctx context.Context, d *data) (production, error) {
	var p production
	preset, err := cluster.Preset("production")
	if err != nil {
		return p, err
	}
	fleets, err := play(ctx, preset, effort.jobs, jobRounds)
	if err != nil {
		return p, fmt.Errorf("simulating production: %w", err)
	}
	p.jobs = jobsOf(fleets)
	long, err := play(ctx, preset, effort.walks, walkRounds)
	if err != nil {
		return p, fmt.Errorf("simulating production: %w", err)
	}
	var walk []series
	for i, j := range jobsOf(long) { // the jobs of the source have no slow worker
		if median(j.cov) > slowJob {
			continue
		}
		for _, s := range long[i] {
			walk = append(walk, every(s, sampled))
		}
	}
	_, p.simulated = wandering(walk)
	p.measured, p.low, p.high = bootstrap(d.workers, func(s []series) []float64 { _, r := wandering(s); return r })
	p.spread = p.resampled(d.jobs)
	return p, p.cross(ctx, d, preset)
}

// distances are those of the variation of all jobs, and of jobs without a slow worker.
func distances(measured, simulated []job) [2]float64 {
	return [2]float64{distance(pooled(measured), pooled(simulated)), distance(pooled(quietJobs(measured)), pooled(quietJobs(simulated)))}
}

func distance(a, b []float64) float64 {
	x, y := newSample(a, nil), newSample(b, nil)
	return stat.KolmogorovSmirnov(x.values, nil, y.values, nil)
}

// resampled is the 90% interval of the distances where the measured jobs are drawn with replacement.
func (p *production) resampled(jobs []job) (spread [2][2]float64) {
	rng := rand.New(rand.NewPCG(2, 2))
	var all [2][]float64
	again := make([]job, len(jobs))
	for range resamples / 4 {
		for i := range again {
			again[i] = jobs[rng.IntN(len(jobs))]
		}
		for k, v := range distances(again, p.jobs) {
			all[k] = append(all[k], v)
		}
	}
	for k := range all {
		spread[k] = [2]float64{quantile(0.05, all[k]), quantile(0.95, all[k])}
	}
	return spread
}

// cross fits what comes of the variation over workers to every second job and takes the distances to the
// others, both ways.
func (p *production) cross(ctx context.Context, d *data, preset cluster.Conditions) error {
	var half [2][]job
	for i, j := range d.jobs {
		half[i%2] = append(half[i%2], j)
	}
	p.between = distances(half[0], half[1])
	for k := range half {
		fleets, err := play(ctx, refitted(half[k], preset), effort.jobs/2, jobRounds)
		if err != nil {
			return fmt.Errorf("simulating half of the jobs: %w", err)
		}
		for i, v := range distances(half[1-k], jobsOf(fleets)) {
			p.halves[i] = max(p.halves[i], v)
		}
	}
	return nil
}

// refitted is the preset with what the variation over the workers of jobs says; how the part that changes
// with time divides into drift and noise stays.
func refitted(jobs []job, preset cluster.Conditions) cluster.Conditions {
	c := preset
	scale := math.Sqrt(sq(c.Noise.Median) + sq(c.Drift.SD) + sq(c.Drift.SlowSD))
	var changing float64
	c.Bias, c.Job.Bias, changing, c.Job.Noise = levels(jobs)
	c.Noise.Median, c.Drift.SD, c.Drift.SlowSD = c.Noise.Median*changing/scale, c.Drift.SD*changing/scale, c.Drift.SlowSD*changing/scale
	s := &c.Straggler
	s.Chance, s.Excess.Median, s.Excess.Sigma, s.SD, s.Rounds = stragglerLaw(jobs)
	e := preset.Episodes[0]
	_, middle, sigma := burstLaw(bursts(jobs))
	e.Rate, e.Rounds, c.Job.Episodes = burstRate(jobs)
	if !math.IsNaN(middle + sigma) {
		e.Excess = cluster.Spread{Median: min(middle, 8), Sigma: min(sigma, 3)}
	}
	c.Episodes = []cluster.Episode{e}
	return c
}

// burstSample is the lengths of bursts, or their excesses as far as they are finite, with weights.
func burstSample(all []burst, lengths bool) sample {
	var x, w []float64
	for _, b := range all {
		v := b.excess
		if lengths {
			v = b.rounds
		}
		if !math.IsInf(v, 0) {
			x, w = append(x, v), append(w, b.weight)
		}
	}
	return newSample(x, w)
}
