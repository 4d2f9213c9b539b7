package run

import (
	"fmt"

	"evenkeel/internal/chart"
)

// sizeHistory holds the sizes of one device's nodes: over the nodes that took part; rounds
// in which all were absent are left out.
type sizeHistory struct{ round, mean, low, high []float64 }

// classes records the sizes of the newest round by device.
func (w *watch) classes() {
	sums, counts := map[string]int{}, map[string]int{}
	low, high := map[string]int{}, map[string]int{}
	for i, b := range w.round.Plan.Sizes {
		d := w.setup.cluster.Nodes[i].Device
		if w.devices[d] == nil {
			w.devices[d], w.order = &sizeHistory{}, append(w.order, d)
		}
		if b == 0 {
			continue
		}
		if counts[d] == 0 {
			low[d], high[d] = b, b
		}
		low[d], high[d] = min(low[d], b), max(high[d], b)
		sums[d] += b
		counts[d]++
	}
	round := float64(len(w.history.rounds))
	for d, n := range counts {
		c := w.devices[d]
		c.round, c.mean = append(c.round, round), append(c.mean, float64(sums[d])/float64(n))
		c.low, c.high = append(c.low, float64(low[d])), append(c.high, float64(high[d]))
	}
}

// mostPoints is the number of points that a figure of this width can show.
const mostPoints = 300

// thin averages neighbours until at most mostPoints are left.
func thin(values []float64) []float64 {
	n := len(values)
	cells := min(n, mostPoints)
	out := make([]float64, cells)
	for k := range out {
		from, to := k*n/cells, (k+1)*n/cells
		for _, v := range values[from:to] {
			out[k] += v / float64(to-from)
		}
	}
	return out
}

// line draws a moving average over window rounds: single rounds are mostly noise.
func (c *history) line(name string, rounds, window int, value func(*moment) float64) chart.Series {
	s := chart.Series{Name: name}
	for i := range c.rounds[:rounds] {
		from, mean := max(i+1-window, 0), 0.0
		for j := from; j <= i; j++ {
			mean += value(&c.rounds[j]) / float64(i+1-from)
		}
		s.X, s.Y = append(s.X, float64(i+1)), append(s.Y, mean)
	}
	s.X, s.Y = thin(s.X), thin(s.Y)
	return s
}

// figure draws the run: round times and idle shares beside those of the references, and
// the sizes.
func (w *watch) figure() chart.Figure {
	n := len(w.history.rounds)
	wait := func(m *moment) float64 { return m.wait }
	idle := func(m *moment) float64 { return 100 * m.idle }
	window := max(n/25, 1)
	over := ""
	if window > 1 {
		over = fmt.Sprintf(", mean over %d rounds", window)
	}
	times := chart.Panel{Title: "Round time" + over, XLabel: "round", YLabel: "seconds", ZeroY: true}
	idles := chart.Panel{Title: "Idle share of the nodes' time" + over, XLabel: "round", YLabel: "%", ZeroY: true}
	sizes := chart.Panel{Title: "Share by device (mean, least to most)", XLabel: "round", YLabel: "samples", ZeroY: true}
	lates := chart.Panel{Title: "Late share of the accepted samples" + over, XLabel: "round", YLabel: "%", ZeroY: true}
	late := func(m *moment) float64 { return 100 * m.late }
	times.Series = append(times.Series, w.history.line("Evenkeel", n, window, wait))
	idles.Series = append(idles.Series, w.history.line("Evenkeel", n, window, idle))
	lates.Series = append(lates.Series, w.history.line("Evenkeel", n, window, late))
	second := oracleReference
	if w.setup.cluster.Collect.Timed() {
		second = waitingReference // what the deadline brings: the oracle has it too
	}
	for _, policy := range []string{uniformReference, second} {
		c, m := w.references.at(policy, n)
		if m == nil {
			continue
		}
		title := w.title(policy)
		times.Series = append(times.Series, c.line(title, n, window, wait))
		idles.Series = append(idles.Series, c.line(title, n, window, idle))
		lates.Series = append(lates.Series, c.line(title, n, window, late))
	}
	for _, d := range w.order {
		c := w.devices[d]
		if len(c.round) == 0 {
			continue
		}
		x := thin(c.round)
		sizes.Series = append(sizes.Series, chart.Series{Name: d, Kind: chart.Step, X: x, Y: thin(c.mean)}, chart.Series{Kind: chart.Band, X: x, Low: thin(c.low), High: thin(c.high)})
	}
	panels := []chart.Panel{times, idles}
	if closesEarly(w.setup.cluster) {
		panels = append(panels, lates)
	}
	if w.setup.freeRule() {
		panels = append(panels, chart.Panel{Title: "Rule of the round" + over, XLabel: "round", YLabel: "%", ZeroY: true, Series: []chart.Series{
			w.history.line("quorum", n, window, func(m *moment) float64 { return 100 * m.rule.Quorum }),
			w.history.line("grace", n, window, func(m *moment) float64 { return 100 * m.rule.Grace }),
		}})
	}
	return chart.Figure{
		Title:  fmt.Sprintf("%s: %d nodes, %s", w.setup.name, len(w.setup.cluster.Nodes), w.setup.cluster.Workload),
		Panels: append(panels, sizes),
	}
}
