package main

import (
	"context"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/experiments/internal/fleet"
)

// comparison is one quantity, measured in the files and in the simulator.
type comparison struct {
	name                string
	measured, simulated sample
	distance            float64 // Kolmogorov-Smirnov: the largest gap between the two distribution functions
}

// sample is values in increasing order with their weights; nil weighs all the same.
type sample struct{ values, weights []float64 }

func newSample(values, weights []float64) sample {
	s := sample{slices.Clone(values), slices.Clone(weights)}
	stat.SortWeighted(s.values, s.weights)
	return s
}

func (s sample) quantile(p float64) float64 {
	return stat.Quantile(p, stat.Empirical, s.values, s.weights)
}

// comparisons holds the report on the simulator.
type comparisons struct {
	rows       []comparison
	production production
}

// play runs so many fleets of ten equal workers with equal batches, as in the measured jobs, for so many rounds, each with its own seed, and returns the
// times of every worker over its profile's.
func play(ctx context.Context, conditions cluster.Conditions, fleets, rounds int) ([][]series, error) {
	c, err := fleet.Mixed("lm", workers, 20, "v100")
	if err != nil {
		return nil, err
	}
	sizes := make([]int, len(c.Nodes))
	for i := range sizes {
		sizes[i] = c.GlobalBatch / len(sizes)
	}
	nominal := c.Nodes[0].Profile.Seconds(float64(sizes[0]))
	out := make([][]series, fleets)
	for f := range out {
		s := sim.New(c, conditions, uint64(f)+1)
		out[f] = make([]series, len(sizes))
		for range rounds {
			report, err := s.Round(ctx, cluster.Plan{Sizes: sizes})
			if err != nil {
				return nil, err
			}
			for i, n := range report.Nodes {
				out[f][i].times = append(out[f][i].times, n.Seconds/nominal)
			}
		}
	}
	return out, nil
}

// variation is the coefficient of variation over the workers, round by round.
func variation(fleets [][]series) []float64 {
	var out []float64
	for _, f := range fleets {
		row := make([]float64, len(f))
		for r := range f[0].times {
			for i := range f {
				row[i] = f[i].times[r]
			}
			out = append(out, stat.StdDev(row, nil)/stat.Mean(row, nil))
		}
	}
	return out
}

// compare takes the measurements of both sides.
func compare(ctx context.Context, d *data) (*comparisons, error) {
	c := &comparisons{}
	var failed error
	simulate := func(name string, fleets, rounds int, change ...func(*cluster.Conditions)) [][]series {
		conditions, err := cluster.Preset(name)
		for _, f := range change {
			f(&conditions)
		}
		var out [][]series
		if err == nil {
			out, err = play(ctx, conditions, fleets, rounds)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("simulating %s: %w", name, err)
		}
		return out
	}
	// excess is what an episode of the preset adds, without anything else.
	excess := func(name string) []float64 {
		fleets := simulate(name, 300, 1, func(c *cluster.Conditions) {
			e := c.Episodes[0]
			e.AtStart, e.Rounds = 1, 1000
			*c = cluster.Conditions{Episodes: []cluster.Episode{e}}
		})
		var out []float64
		for _, s := range slices.Concat(fleets...) {
			out = append(out, s.times[0]-1)
		}
		return above(out, 1e-6)
	}
	steady := slices.Concat(simulate("steady", 60, 50)...)
	drift := variation(simulate("drift", 60, 200))
	gavel, capped, short := excess("colocated"), excess("powercap"), excess("bursts")
	if failed != nil {
		return nil, failed
	}
	var err error
	if c.production, err = playProduction(ctx, d); err != nil {
		return nil, err
	}

	add := func(name string, measured, simulated sample) {
		if len(measured.values) == 0 || len(simulated.values) == 0 {
			return
		}
		c.rows = append(c.rows, comparison{name, measured, simulated,
			stat.KolmogorovSmirnov(measured.values, measured.weights, simulated.values, simulated.weights)})
	}
	plain := func(v []float64) sample { return newSample(v, nil) }
	add("Step noise of a node (relative sd)", plain(noises(d.steps)), plain(noises(steady)))
	add("Spikes (step over the median - 1)", plain(excesses(d.steps)), plain(excesses(steady)))
	quiet := pooled(quietJobs(d.jobs))
	add("Variation over ten workers (CoV), preset production", plain(pooled(d.jobs)), plain(pooled(c.production.jobs)))
	add("CoV of jobs without a slow worker, preset production", plain(quiet), plain(pooled(quietJobs(c.production.jobs))))
	add("The same, preset drift", plain(quiet), plain(drift))
	add("Slowdown by sharing the GPU - 1", plain(above(d.sharing, 0)), plain(gavel))
	add("Slowdown by a power cap - 1", plain(above(d.capped, 0)), plain(capped))
	for k, name := range []string{"Slowdown in a burst - 1", "Length of a burst, rounds"} {
		m, p := burstSample(bursts(d.jobs), k == 1), burstSample(bursts(c.production.jobs), k == 1)
		add(name+", preset production", m, p)
		if k == 0 {
			add("The same, preset bursts", m, plain(short))
		}
	}
	return c, nil
}

// every keeps each step-th value.
func every(s series, step int) series {
	var out series
	for i := 0; i < len(s.times); i += step {
		out.times = append(out.times, s.times[i])
	}
	return out
}
