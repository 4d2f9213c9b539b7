package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/chart"
	"evenkeel/train"
)

// layerReport is where a layer's exchange and save lay, means over all pipelined steps of node 0.
type layerReport struct {
	Layer           string
	BackwardSeconds float64
	ExchangeSeconds float64
	ExchangeHidden  float64 // share of that time in which the node computed gradients or losses
	SaveSeconds     float64 // from handing over until written
	SaveHidden      float64
}

// layers sums up the spans, layers from the last to the first: the order of the schedule.
func layers(spans []train.Span) []layerReport {
	var compute []train.Span
	type sum struct{ time, hidden time.Duration }
	sums := map[string]map[train.Activity]*sum{}
	steps := map[uint64]bool{}
	for _, s := range spans {
		if s.Node == 0 && (s.Activity == train.Forward || s.Activity == train.Backward) {
			compute = append(compute, s)
		}
		steps[s.Step] = true
	}
	slices.SortFunc(compute, func(a, b train.Span) int { return int(a.Begin - b.Begin) })
	for _, s := range spans {
		if s.Node != 0 || s.Layer == "" {
			continue
		}
		if sums[s.Layer] == nil {
			sums[s.Layer] = map[train.Activity]*sum{train.Backward: {}, train.Exchange: {}, train.Save: {}}
		}
		if a := sums[s.Layer][s.Activity]; a != nil {
			a.time += s.End - s.Begin
			a.hidden += covered(s, compute)
		}
	}
	var out []layerReport
	for name, a := range sums {
		if a[train.Exchange].time == 0 {
			continue // no parameters
		}
		mean := func(x train.Activity) float64 { return a[x].time.Seconds() / float64(len(steps)) }
		share := func(x train.Activity) float64 { return float64(a[x].hidden) / float64(max(1, a[x].time)) }
		out = append(out, layerReport{name, mean(train.Backward), mean(train.Exchange), share(train.Exchange), mean(train.Save), share(train.Save)})
	}
	slices.SortFunc(out, func(a, b layerReport) int { return number(b.Layer) - number(a.Layer) })
	return out
}

// covered is how much of a span lies within others, which are sorted and apart.
func covered(s train.Span, others []train.Span) (d time.Duration) {
	first, _ := slices.BinarySearchFunc(others, s.Begin, func(o train.Span, at time.Duration) int { return int(o.End - at) })
	for _, o := range others[first:] {
		if o.Begin >= s.End {
			break
		}
		d += max(0, min(o.End, s.End)-max(o.Begin, s.Begin))
	}
	return d
}

// number is that of dense7.
func number(layer string) (n int) {
	_, _ = fmt.Sscan(strings.TrimLeft(layer, "abcdefghijklmnopqrstuvwxyz"), &n)
	return n
}

// figure draws two steps of node 0 both ways, on one scale.
func figure(sequential, pipelined []train.Span) chart.Figure {
	a, endA := panel("one thing after the other", sequential)
	b, endB := panel("layer pipeline", pipelined)
	end := []float64{max(endA, endB), max(endA, endB)}
	zero := []float64{0, 0}
	for _, p := range []*chart.Panel{&a, &b} { // nothing to be seen, but the axis reaches that far
		p.Series = append(p.Series, chart.Series{Kind: chart.Band, X: end, Low: zero, High: zero})
	}
	return chart.Figure{Title: "Two steps of a node, layer by layer", Panels: []chart.Panel{a, b}}
}

// drawn are the activities with the place of their bar in a layer's row.
var drawn = []struct {
	activity  train.Activity
	low, high float64
}{{train.Backward, 0.1, 0.45}, {train.Forward, 0.1, 0.45}, {train.Exchange, -0.15, 0.1}, {train.Save, -0.4, -0.15}}

func panel(title string, spans []train.Span) (_ chart.Panel, end float64) {
	p := chart.Panel{Title: title, XLabel: "milliseconds", YLabel: "layer (0: forward, all layers)"}
	first := typical(spans)
	begin := time.Duration(1 << 62)
	for _, s := range spans {
		if s.Step == first {
			begin = min(begin, s.Begin)
		}
	}
	for _, d := range drawn {
		name := string(d.activity)
		for _, s := range spans {
			if s.Node != 0 || s.Activity != d.activity || s.Step < first || s.Step > first+1 || strings.HasPrefix(s.Layer, "relu") {
				continue
			}
			row := float64(number(s.Layer))
			x := []float64{(s.Begin - begin).Seconds() * 1000, (s.End - begin).Seconds() * 1000}
			end = max(end, x[1])
			p.Series = append(p.Series, chart.Series{Name: name, Kind: chart.Band, X: x, Low: []float64{row + d.low, row + d.low}, High: []float64{row + d.high, row + d.high}})
			name = "" // the colour of the one before
		}
	}
	return p, end
}

// typical is the first of two steps that follow each other at once, not with the turns of others between them, and
// together take the median time.
func typical(spans []train.Span) uint64 {
	type step struct{ begin, end time.Duration }
	steps := map[uint64]step{}
	for _, s := range spans {
		at, ok := steps[s.Step]
		switch {
		case s.Node != 0:
			continue
		case s.Activity == train.Forward:
			at.begin = s.Begin
		case s.Activity == train.Update:
			at.end = max(at.end, s.End)
		case !ok:
			continue
		}
		steps[s.Step] = at
	}
	var pairs []uint64
	for n, at := range steps {
		if gap := steps[n+1].begin - at.end; at.begin > 0 && gap >= 0 && gap < (at.end-at.begin)/2 {
			pairs = append(pairs, n)
		}
	}
	lasts := func(n uint64) time.Duration { return steps[n+1].end - steps[n].begin }
	slices.SortFunc(pairs, func(a, b uint64) int { return cmp.Or(cmp.Compare(lasts(a), lasts(b)), cmp.Compare(a, b)) })
	if len(pairs) == 0 { // others have used the machine all the time
		return 1
	}
	return pairs[(len(pairs)-1)/2]
}
