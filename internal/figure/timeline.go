package figure

import (
	"fmt"

	"evenkeel/internal/chart"
	"evenkeel/planner/pipeline"
)

// activities in the order of the legend, with the edges of their boxes around a stage's
// row: passes above, transfers in two lanes below.
var activities = []struct {
	activity  pipeline.Activity
	low, high float64
}{
	{pipeline.Forward, -0.42, 0.16},
	{pipeline.Backward, -0.42, 0.16},
	{pipeline.Weights, -0.42, 0.16},
	{pipeline.Activations, 0.18, 0.28},
	{pipeline.Gradients, 0.3, 0.4},
	{pipeline.Synchronise, -0.42, 0.16},
	{pipeline.Optimize, -0.42, 0.16},
}

// maxBoxes is how many spans a figure shows at most; more would be too narrow to see.
const maxBoxes = 20000

// Timeline draws one iteration of a plan, a row for each stage. Errors wrap chart.ErrData where it has too many spans to be seen.
func Timeline(t *pipeline.Timeline) (chart.Figure, error) {
	if len(t.Spans) > maxBoxes {
		return chart.Figure{}, fmt.Errorf("%w: %d spans; a figure shows up to %d; write the trace instead, a viewer can zoom", chart.ErrData, len(t.Spans), maxBoxes)
	}
	panel := chart.Panel{XLabel: "seconds"}
	for i := range t.Stages {
		panel.Categories = append(panel.Categories, fmt.Sprintf("stage %d", i))
	}
	for _, a := range activities {
		series := chart.Series{Name: string(a.activity), Kind: chart.Boxes}
		for _, s := range t.Spans {
			if s.Activity == a.activity {
				series.X, series.Y = append(series.X, s.Begin), append(series.Y, s.End)
				low, high := float64(s.Stage)+a.low, float64(s.Stage)+a.high
				if s.Activity == pipeline.Activations || s.Activity == pipeline.Gradients { // of several chunks some are at one time
					each := (high - low) / float64(max(1, t.Chunks))
					low += float64(s.Chunk) * each
					high = low + each
				}
				series.Low, series.High = append(series.Low, low), append(series.High, high)
			}
		}
		if len(series.X) > 0 {
			panel.Series = append(panel.Series, series)
		}
	}
	title := "One iteration"
	if t.Model != "" {
		title += fmt.Sprintf(" of the model %q", t.Model)
	}
	return chart.Figure{Title: title, Panels: []chart.Panel{panel}}, nil
}
