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

    go run ./experiments/tuner/fit-conditions ../shared/data

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
	p := &c.production
	fmt.Fprintf(w, `
Distances of the preset production, and what they rest on:

| | all jobs | jobs without a slow worker |
|---|---|---|
| KS | %.3f | %.3f |
| 90%% interval, the measured jobs drawn with replacement | %.2f to %.2f | %.2f to %.2f |
| fitted to every second job, taken to the others; the worse way round | %.2f | %.2f |
| from the measured half to the other | %.2f | %.2f |

The third row fits bias, levels, bursts and the straggler without a hand in it; the division of what changes with time into drift and noise stays, as does
what other files say.

| rounds apart | 10 | 20 | 50 | 100 | 200 |
|---|---|---|---|---|---|
`, distance(pooled(d.jobs), pooled(p.jobs)), distance(pooled(quietJobs(d.jobs)), pooled(quietJobs(p.jobs))),
		p.spread[0][0], p.spread[0][1], p.spread[1][0], p.spread[1][1], p.halves[0], p.halves[1], p.between[0], p.between[1])
	for k, r := range [][]float64{p.measured, p.low, p.high, p.simulated} {
		fmt.Fprintf(w, "| correlation of a worker's time, %s |", [...]string{"measured", "5% of a bootstrap over workers", "95%", "simulated under production, jobs without a slow worker"}[k])
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
- **The other presets are not jobs as measured.** steady, drift and those built on them give every node a noise of its own, drawn from the spread between machines and models (log sd
  %s in the preset; the workers of one PAI job: %s). Ten drawn apart hold one or two very noisy nodes, and bias, noise and drift count one another's part again. So
  the lower half of their variation is too large. They stay as they are: policies are trained on them and published tables rest on them, and noise of very unlike machines is what mixed clusters have.
- **PAI's extremes.** %.1f%% of the iterations vary more than one worker at nine times the time of the others would make them vary. A variation near 3.16, the most that ten workers can show, says no more than "very slow":
  so the largest measured excesses are no measurements.
- **Slow workers that come and go.** Some slow jobs switch between equal and very unlike for hundreds of rounds. The straggler's excess wanders around one level, quickly.
- **Three jobs say how a worker's time wanders.** In parts the source repeats its times in pairs, which lifts the correlation at 10 rounds. Drift's parameters are moved from
  what a fit of two exponentials finds towards more and slower drift, because bursts and spikes of the preset dilute the correlation and a series of %d rounds hides part of what is slower than itself: the row of the simulated correlation is the check.
- **Spikes every tenth round.** Whether they come in clusters PAI's samples cannot say, so that is taken from steps of one-GPU processes.
- **noise_within.** Over the whole trace a micro-batch has %.0f%% of the variance of its log time to itself. But what the micro-batches of a step share is nearly all slow: within windows of neighbouring
  steps it is %s of the micro-batch's own deviation (%s). The simulator has drift for what is slow. One job of one model on one kind of GPU; with unequal lengths (trace SE) the lengths are the whole matter.
- **Rates and lengths of episodes in the other presets are choices**, made to have something to control, not fits: bursts starts them %s times as often as the measured jobs without a slow worker do, and they last longer.
`, short(noiseSigma()), short(alike(d.workers)), 100*float64(beyond)/float64(len(all)), walkRounds, 100*ownShare(d.whole()), commonPart(d.windows), deviation(d.windows), often(d))
}

// whole joins the windows of each worker.
func (d *data) whole() []window {
	var out []window
	for i, w := range d.windows {
		if i > 0 && d.owners[i] == d.owners[i-1] {
			out[len(out)-1] = append(out[len(out)-1], w...)
			continue
		}
		out = append(out, append(window(nil), w...))
	}
	return out
}

// commonPart is the deviation that the micro-batches of a step share over their own.
func commonPart(all []window) string {
	own, common := within(all)
	return fmt.Sprintf("%.0f%%", 100*math.Sqrt(max(common, 0)/own))
}

func deviation(all []window) string {
	own, _ := within(all)
	return fmt.Sprintf("%.1f%% of its time", 100*math.Sqrt(own))
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
