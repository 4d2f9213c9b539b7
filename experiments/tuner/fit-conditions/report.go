package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// report writes the tables.
func report(w io.Writer, d *data, params []parameter, c *comparisons) {
	fmt.Fprint(w, "Parameters of the presets; 90% bootstrap over what was measured independently (series, jobs, workers, pairs):\n\n"+
		"| parameter | preset | found | 90% interval | preset - found | file: how |\n|---|---|---|---|---|---|\n")
	for _, p := range params {
		fmt.Fprintf(w, "| %s | %s | %s | %s to %s | %+.0f%% | %s: %s |\n", p.name, short(p.preset), short(p.found), short(p.low), short(p.high), math.Round(100*(p.preset/p.found-1))+0, p.source, p.how) // + 0: no "-0"
	}
	fmt.Fprint(w, "\nDistributions, measured and of ten equal simulated nodes; KS is the largest gap between the two distribution functions:\n\n"+
		"| quantity | values | measured: 10% / 50% / 90% | simulated | KS |\n|---|---|---|---|---|\n")
	for _, r := range c.rows {
		of := func(s sample) string {
			return short(s.quantile(0.1)) + " / " + short(s.quantile(0.5)) + " / " + short(s.quantile(0.9))
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %.2f |\n", r.name, len(r.measured.values), of(r.measured), of(r.simulated), r.distance)
	}
	p := &c.production
	fmt.Fprintf(w, `
Distances of the preset production:

| | all jobs | jobs without a slow worker |
|---|---|---|
| KS | %.3f | %.3f |
| 90%% interval, the measured jobs drawn with replacement | %.2f to %.2f | %.2f to %.2f |
| fitted to every second job, taken to the others; the worse way round | %.2f | %.2f |
| from the measured half to the other | %.2f | %.2f |

| correlation of a worker's time, rounds apart | 10 | 20 | 50 | 100 | 200 |
|---|---|---|---|---|---|
`, distance(pooled(d.jobs), pooled(p.jobs)), distance(pooled(quietJobs(d.jobs)), pooled(quietJobs(p.jobs))),
		p.spread[0][0], p.spread[0][1], p.spread[1][0], p.spread[1][1], p.halves[0], p.halves[1], p.between[0], p.between[1])
	for k, r := range [][]float64{p.measured, p.low, p.high, p.simulated} {
		fmt.Fprintf(w, "| %s |", [...]string{"measured", "5% of a bootstrap", "95%", "simulated"}[k])
		for _, lag := range []int{1, 2, 5, 10, 20} {
			fmt.Fprintf(w, " %.2f |", r[lag])
		}
		fmt.Fprintln(w)
	}
}

// short prints three digits, without an exponent.
func short(v float64) string {
	digits := 2
	if a := math.Abs(v); a > 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(a))))
	}
	return strconv.FormatFloat(v, 'f', min(digits, 5), 64)
}
