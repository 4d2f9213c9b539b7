package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/chart"
	"evenkeel/lab/evaluation"
)

// cells groups results by cluster and scenario.
func cells(results []evaluation.Result) [][]evaluation.Result {
	var out [][]evaluation.Result
	for i, r := range results {
		if i == 0 || r.Cluster != results[i-1].Cluster || r.Scenario != results[i-1].Scenario {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// best is the index of the policy to beat: the best one that is not a bound, except the
// first; -1 if there is none.
func best(cell []evaluation.Result) int {
	at := -1
	for i, r := range cell {
		if i > 0 && !r.Bound && (at < 0 || r.Progress > cell[at].Progress) {
			at = i
		}
	}
	return at
}

// legend explains what the tables have.
func legend(results []evaluation.Result) []string {
	lines := []string{
		"rounds end when all gradients are in, or a quorum's, or at a deadline: compare like with like",
		"progress   goodput relative to that of the state oracle, which knows every node's true rate; mean [95% interval]",
	}
	all := cells(results)
	some := func(has func([]evaluation.Result) bool, line string) {
		if slices.ContainsFunc(all, has) {
			lines = append(lines, line)
		}
	}
	some(func(c []evaluation.Result) bool { return len(c) > 1 },
		"gains      difference of progress under the same seeds; above zero the first policy is better")
	some(early, "samples    accepted per round, over the global batch: fewer are faster, and an update is worth less")
	some(func(c []evaluation.Result) bool { return best(c) >= 0 }, "*          the best of the others")
	some(func(c []evaluation.Result) bool {
		return slices.ContainsFunc(c, func(r evaluation.Result) bool { return r.Bound })
	}, "(bound)    a reference that knows what no policy can; a policy may pass it")
	return lines
}

// early says whether some rounds of a cell end before all gradients are in.
func early(cell []evaluation.Result) bool {
	return slices.ContainsFunc(cell, func(r evaluation.Result) bool { return r.Ends != "all in" })
}

// Positions of columns that not every table has: joules where some power is known, and the
// samples of a round where not all are waited for.
const (
	energyColumn  = 6
	samplesColumn = 6
)

// printComparison writes a table per cluster and scenario.
func printComparison(w io.Writer, results []evaluation.Result) error {
	var lines []string
	for _, cell := range cells(results) {
		first := cell[0]
		lines = append(lines, fmt.Sprintf("%s, %s: %s, %s of %s", first.Cluster, first.Scenario,
			cli.Count(first.Nodes, "node"), cli.Count(first.Seeds, "seed"), cli.Count(first.Rounds, "round")))
		columns := []cli.Column{
			cli.Left("policy"), cli.Left("rounds end"), cli.Left("progress"), cli.Left(first.Policy + " gains over it"),
			cli.Right("waiting"), cli.Right("fresh"), cli.Right("decision p50"), cli.Right("p99"), cli.Left("tuned to"),
		}
		timed := early(cell)
		if timed { // rules that shrink the batch look fast
			columns = slices.Insert(columns, samplesColumn, cli.Right("samples"))
		}
		known := slices.ContainsFunc(cell, func(r evaluation.Result) bool { return r.Energy > 0 })
		if known {
			columns = slices.Insert(columns, energyColumn, cli.Right("J/sample"))
		}
		var rows [][]string
		star := best(cell)
		for i, r := range cell {
			name, gain := r.Policy, ""
			switch {
			case i == star:
				name += " *"
			case r.Bound:
				name += " (bound)"
			}
			if i > 0 {
				gain = fmt.Sprintf("%+.4f [%+.4f, %+.4f]", r.Gain.Mean, r.Gain.Low, r.Gain.High)
			}
			row := []string{
				name, r.Ends, fmt.Sprintf("%.4f [%.4f, %.4f]", r.Progress, r.Low, r.High), gain,
				cli.Percent(r.Waiting), cli.Percent(r.Freshness), cli.Seconds(r.P50 / 1e6), cli.Seconds(r.P99 / 1e6), r.Knobs,
			}
			if timed {
				row = slices.Insert(row, samplesColumn, fmt.Sprintf("%.3f", r.SamplesMean))
			}
			if known {
				row = slices.Insert(row, energyColumn, cli.Ratio(r.Energy, cli.Rate(r.Energy)))
			}
			rows = append(rows, row)
		}
		lines = append(append(lines, cli.Table(columns, rows)...), "")
	}
	return cli.PrintLines(w, append(lines, legend(results)...))
}

// competitive is the share of the best progress below which a bar is cut off, so that the
// good policies can be told apart.
const competitive = 0.6

// comparisonFigure shows, for every scenario, how far each policy is from the state
// oracle, over all clusters if there are several. The oracle is the zero line; other bounds are left out.
func comparisonFigure(results []evaluation.Result) chart.Figure {
	all := cells(results)
	last := all[len(all)-1][0]
	figure := chart.Figure{Title: fmt.Sprintf("Progress over the state oracle's: %s, %s", last.Cluster, cli.Count(last.Seeds, "seed"))}
	for _, cell := range all {
		if cell[0].Cluster != last.Cluster {
			continue
		}
		figure.Panels = append(figure.Panels, comparisonPanel(cell))
	}
	return figure
}

// narrow breaks long names of policies into lines.
var narrow = strings.NewReplacer("proportional", "propor-\ntional", "-", "-\n")

// comparisonPanel shows one cell; the first policy is highlighted.
func comparisonPanel(cell []evaluation.Result) chart.Panel {
	var shown []evaluation.Result
	for _, r := range cell {
		if !r.Bound || best(cell) < 0 {
			shown = append(shown, r)
		}
	}
	against := func(progress float64) float64 { return 100 * (progress - 1) }
	top, end := 0.0, 0.0
	for _, r := range shown {
		top = max(top, r.Progress)
	}
	for _, r := range shown {
		if r.Progress >= competitive*top {
			end = min(end, against(r.Progress), against(r.Low))
		}
	}
	end *= 1.05 // the longest whisker ends inside
	panel := chart.Panel{Title: cell[0].Scenario, YLabel: "over the oracle, %", Zero: "state oracle", ZeroY: true}
	bars := chart.Series{Kind: chart.Bars, Muted: true}
	for i, r := range shown {
		name := fmt.Sprintf("%s\n%.3f", narrow.Replace(r.Policy), r.Progress)
		y, low, high := against(r.Progress), against(r.Low), against(r.High)
		if r.Progress < competitive*top && y < end {
			name += " \u2193"
			y, low, high = end, end, end
			panel.Title = cell[0].Scenario + ", \u2193: cut off"
		}
		panel.Categories = append(panel.Categories, name)
		bars.Y, bars.Low, bars.High = append(bars.Y, y), append(bars.Low, low), append(bars.High, high)
		bars.Accent = append(bars.Accent, i == 0)
	}
	panel.Series = []chart.Series{bars}
	return panel
}
