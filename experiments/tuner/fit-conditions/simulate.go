package main

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/stat"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/internal/chart"
)

// comparison is one quantity, measured in the files and in the simulator.
type comparison struct {
	name                string
	measured, simulated sample
	drawn, linear       bool    // in the figure; there on a linear axis
	distance            float64 // Kolmogorov-Smirnov: the largest gap between the two distribution functions
}

// sample is values in increasing order with their weights; nil weighs all the same.
type sample struct{ values, weights []float64 }

func newSample(values, weights []float64) sample {
	s := sample{append([]float64(nil), values...), append([]float64(nil), weights...)}
	if weights == nil {
		s.weights = nil
	}
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
	middles    []middle
	spiked     [2]float64 // share of steps that are spikes, measured and simulated
}

// middle is the median variation over ten workers under a preset.
type middle struct {
	preset string
	biased bool // with the preset's bias, or with none
	cov    float64
}

// fleet is ten equal workers with equal batches, as in the measured jobs.
func fleet() (*cluster.Cluster, error) {
	const device, workload = "v100", "lm"
	p, err := profile.Embedded().Lookup(device, workload)
	if err != nil {
		return nil, err
	}
	c := &cluster.Cluster{Workload: workload, GlobalBatch: 20 * workers}
	for i := range workers {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("%s-%d", device, i), Device: device, Profile: p, Limit: profile.NoLimit})
	}
	return c, nil
}

// play runs so many fleets for so many rounds, each with its own seed, and returns the
// times of every worker over its profile's.
func play(ctx context.Context, conditions cluster.Conditions, fleets, rounds int) ([][]series, error) {
	c, err := fleet()
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

func flat(fleets [][]series) []series {
	var out []series
	for _, f := range fleets {
		out = append(out, f...)
	}
	return out
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
		for _, s := range flat(fleets) {
			out = append(out, s.times[0]-1)
		}
		return above(out, 1e-6)
	}
	steady := flat(simulate("steady", 60, 50))
	drift := variation(simulate("drift", 60, 200))
	gavel, capped, short := excess("colocated"), excess("powercap"), excess("bursts")
	if failed != nil {
		return nil, failed
	}
	var err error
	if c.production, err = playProduction(ctx, d); err != nil {
		return nil, err
	}

	add := func(name string, measured, simulated sample, drawn, linear bool) {
		if len(measured.values) == 0 || len(simulated.values) == 0 {
			return
		}
		c.rows = append(c.rows, comparison{name, measured, simulated, drawn, linear,
			stat.KolmogorovSmirnov(measured.values, measured.weights, simulated.values, simulated.weights)})
	}
	plain := func(v []float64) sample { return newSample(v, nil) }
	add("Step noise of a node (relative sd)", plain(noises(d.steps)), plain(noises(steady)), true, false)
	add("Spikes (step over the median - 1)", plain(excesses(d.steps)), plain(excesses(steady)), true, true)
	quiet := pooled(quietJobs(d.jobs))
	add("Variation over ten workers (CoV), preset production", plain(pooled(d.jobs)), plain(pooled(c.production.jobs)), true, false)
	add("CoV of jobs without a slow worker, preset production", plain(quiet), plain(pooled(quietJobs(c.production.jobs))), false, false)
	add("The same, preset drift", plain(quiet), plain(drift), false, false)
	add("Slowdown by sharing the GPU - 1", plain(above(d.sharing, 0)), plain(gavel), true, true)
	add("Slowdown by a power cap - 1", plain(above(d.capped, 0)), plain(capped), false, false)
	for k, name := range []string{"Slowdown in a burst - 1", "Length of a burst, rounds"} {
		m, p := burstSample(bursts(d.jobs, 2), k == 1), burstSample(bursts(c.production.jobs, 2), k == 1)
		add(name+", preset production", m, p, false, false)
		if k == 0 {
			add("The same, preset bursts", m, plain(short), false, false)
		}
	}
	for _, name := range []string{"steady", "drift"} {
		for _, biased := range []bool{true, false} {
			v := variation(simulate(name, 60, 50, func(c *cluster.Conditions) {
				if !biased {
					c.Bias = 0
				}
			}))
			if failed != nil {
				return nil, failed
			}
			c.middles = append(c.middles, middle{name, biased, median(v)})
		}
	}
	c.spiked = [2]float64{spiked(d.steps), spiked(steady)}
	return c, nil
}

// classes splits the iterations: those of jobs without a worker that is slow throughout,
// how many of these lie in bursts, and how many belong to the other jobs.
func classes(jobs []job) (quiet []float64, burst, slow int) {
	quiet = pooled(quietJobs(jobs))
	for _, b := range bursts(jobs, 2) {
		burst += int(b.rounds)
	}
	return quiet, burst, len(pooled(jobs)) - len(quiet)
}

// every keeps each step-th value.
func every(s series, step int) series {
	var out series
	for i := 0; i < len(s.times); i += step {
		out.times = append(out.times, s.times[i])
	}
	return out
}

// figure draws the distribution functions above each other, and the autocorrelation.
func (c *comparisons) figure() chart.Figure {
	f := chart.Figure{Title: "Conditions: measured against simulated"}
	const low, high = 0.005, 0.99 // beyond it a few values stretch the axis
	for _, r := range c.rows {
		if !r.drawn {
			continue
		}
		p := chart.Panel{Title: fmt.Sprintf("%s: KS distance %.2f", r.name, r.distance), YLabel: "share below", ZeroY: true, LogX: !r.linear}
		for k, s := range []sample{r.measured, r.simulated} {
			line := chart.Series{Name: [...]string{"measured", "simulated"}[k], Kind: chart.Line, Dashed: k == 1}
			for q := low; q <= high; q += 0.005 {
				line.X = append(line.X, max(s.quantile(q), 1e-4)) // a logarithm needs more than 0
				line.Y = append(line.Y, q)
			}
			p.Series = append(p.Series, line)
		}
		f.Panels = append(f.Panels, p)
	}
	p := chart.Panel{Title: "Correlation of a worker's time with itself, preset production", XLabel: "rounds apart", YLabel: "correlation", ZeroY: true}
	for k, r := range [][]float64{c.production.measured, c.production.simulated} {
		line := chart.Series{Name: [...]string{"measured", "simulated"}[k], Kind: chart.Line, Dashed: k == 1}
		for lag, v := range r {
			line.X, line.Y = append(line.X, float64(lag*sampled)), append(line.Y, v)
		}
		p.Series = append(p.Series, line)
	}
	f.Panels = append(f.Panels, p)
	return f
}
