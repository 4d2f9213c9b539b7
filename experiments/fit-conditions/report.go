package main

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/evenkeel/evenkeel/cluster"
)

// apart is the least difference that is set in bold.
const apart = 0.15

// report writes fit.md.
func report(w io.Writer, d *data, params []parameter, others []string, c *comparisons) {
	fmt.Fprint(w, `# How the presets of conditions follow from measurements

Made by

    go run ./experiments/fit-conditions ../shared/data

![measured against simulated](fit.svg)

## Parameters

Each fitted parameter of cluster/conditions.go, derived again. The interval is a 90% bootstrap over what was
measured independently (series, jobs, workers, pairs). Bold: the preset is more than 15% off.

| parameter | preset | found | 90% interval | preset - found | file |
|---|---|---|---|---|---|
`)
	for _, p := range params {
		diff := fmt.Sprintf("%+.0f%%", math.Round(100*(p.preset/p.found-1))+0) // + 0: no "-0"
		if math.Abs(p.preset/p.found-1) > apart {
			diff = "**" + diff + "**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s to %s | %s | %s |\n", p.name, short(p.preset), short(p.found), short(p.low), short(p.high), diff, p.source)
	}
	fmt.Fprint(w, "\nHow:\n")
	last := ""
	for _, p := range params {
		if p.how != last {
			fmt.Fprintf(w, "- %s (%s): %s.\n", p.name, p.source, p.how)
		}
		last = p.how
	}
	fmt.Fprint(w, "\n`spikes.least` cannot be seen: up to 15% a slow step counts as noise. The same measurements looked at in other ways:\n")
	for _, o := range others {
		fmt.Fprintf(w, "- %s\n", o)
	}

	fmt.Fprint(w, `
## Distributions

The simulator ran ten equal nodes with equal sizes under the presets, and the same measurement was taken of both sides. KS is the
Kolmogorov-Smirnov distance: the largest gap between the two distribution functions.

| quantity | | p10 | p25 | p50 | p75 | p90 | p99 | KS |
|---|---|---|---|---|---|---|---|---|
`)
	points := []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99}
	for _, r := range c.rows {
		for k, s := range []sample{r.measured, r.simulated} {
			name, side, ks := "", "simulated", ""
			if k == 0 {
				name, side, ks = r.name, fmt.Sprintf("measured (%d)", len(s.values)), fmt.Sprintf("%.2f", r.distance)
			}
			fmt.Fprintf(w, "| %s | %s |", name, side)
			for _, p := range points {
				fmt.Fprintf(w, " %s |", short(s.quantile(p)))
			}
			fmt.Fprintf(w, " %s |\n", ks)
		}
	}
	fmt.Fprint(w, "\nThe mixture, by iterations of the measured jobs:\n")
	for _, s := range c.shares {
		fmt.Fprintf(w, "- %s %.1f%%: %s\n", s.preset, 100*s.of, s.why)
	}
	fmt.Fprint(w, "\n| rounds apart | 10 | 20 | 50 | 100 | 200 |\n|---|---|---|---|---|---|\n")
	for k, r := range [][]float64{c.measured, c.simulated} {
		fmt.Fprintf(w, "| correlation of a worker's time, %s |", [...]string{"measured", "simulated under drift"}[k])
		for _, lag := range []int{1, 2, 5, 10, 20} {
			fmt.Fprintf(w, " %.2f |", r[lag])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\nSteps that are spikes: %.2f%% measured, %.2f%% simulated under steady.\n", 100*c.spiked[0], 100*c.spiked[1])
	quiet, _, _ := classes(d.jobs)
	fmt.Fprintf(w, "\nMedian CoV over ten workers: %s measured over all jobs, %s over those without a slow worker; simulated", short(median(pooled(d.jobs))), short(median(quiet)))
	for i, m := range c.middles {
		fmt.Fprintf(w, "%s %s under %s%s", [...]string{"", ","}[min(i, 1)], short(m.cov), m.preset, map[bool]string{true: "", false: " without its bias"}[m.biased])
	}
	fmt.Fprint(w, ".\n")
	misfits(w, d, c)
}

// misfits says where the model cannot fit the data, each claim with its number.
func misfits(w io.Writer, d *data, c *comparisons) {
	fmt.Fprint(w, "\n## Misfits\n\n")
	for _, r := range c.rows {
		worst, at := 0.0, 0.0
		for _, p := range []float64{0.1, 0.25, 0.5, 0.75, 0.9} {
			if off := math.Abs(math.Log(r.simulated.quantile(p) / r.measured.quantile(p))); off > worst {
				worst, at = off, p
			}
		}
		if worst > apart {
			fmt.Fprintf(w, "- %s: between p10 and p90 worst at p%.0f, %s measured, %s simulated.\n", r.name, 100*at, short(r.measured.quantile(at)), short(r.simulated.quantile(at)))
		}
	}
	beyond, all := 0, pooled(d.jobs)
	for _, v := range all {
		if slowest(v) > 8 {
			beyond++
		}
	}
	fmt.Fprintf(w, `
Why, and where the model cannot follow whatever its parameters:
- **Noise belongs to the job, not to the node.** The presets give every node a noise of its own, drawn from the spread between machines and models (log sd
  %s in the preset). The workers of one PAI job are far more alike (log sd %s of their quick noise). Ten drawn apart hold one or two very noisy nodes, so
  the lower half of the simulated variation is too large, whatever the bias: compare the medians without bias above. It also drowns the drift's correlation.
- **Bias and noise are counted twice.** The bias is what is left of the median variation after the *median* noise; the noise's spread brings part of it in again, and under drift the drift too.
- **PAI's extremes.** %.1f%% of the iterations vary more than one worker at nine times the time of the others would make them vary. The simulator cuts
  slowdowns at ninefold; a node slower than that is better treated as failed. A variation near 3.16, the most that ten workers can show, says no more than "very slow":
  so the largest measured bursts are no measurements.
- **One slow worker among equals.** PAI's slow jobs have, as far as a coefficient of variation tells, one worker that is several times slower throughout. Under colocated every
  node is drawn on its own, so two or three of ten are slow, each by less: p90 and p99 of the variation stay too small.
- **Drift has two speeds.** The measured correlation falls quickly and then stays for hundreds of rounds; one exponential cannot do both. In parts
  the source repeats its times in pairs, which lifts the correlation at 10 rounds.
- **Clusters of spikes.** The measured spikes sit in part of the series (mostly four GPUs in one process); the simulator spreads them evenly.
- **Rates and lengths of episodes are choices**, made to have something to control, not fits: bursts starts them %s times as often as the measured jobs without a slow worker do.
`, short(noiseSigma()), short(alike(d.workers)), 100*float64(beyond)/float64(len(all)), often(d))
}

// noiseSigma is the preset's spread of noise over nodes.
func noiseSigma() float64 {
	preset, _ := cluster.Preset("steady")
	return preset.Noise.Sigma
}

// often is the preset's rate of bursts over the measured one per worker and iteration.
func often(d *data) string {
	quiet, in, _ := classes(d.jobs)
	starts := len(bursts(d.jobs, 2))
	if starts == 0 || len(quiet) <= in {
		return "many"
	}
	preset, err := cluster.Preset("bursts")
	if err != nil {
		return "many"
	}
	return short(preset.Episodes[0].Rate / (float64(starts) / workers / float64(len(quiet)-in)))
}

// short prints three digits, without an exponent.
func short(v float64) string {
	digits := 2
	if a := math.Abs(v); a > 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(a))))
	}
	return strconv.FormatFloat(v, 'f', min(digits, 5), 64)
}
