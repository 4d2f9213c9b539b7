package figure

import (
	"errors"
	"fmt"

	"evenkeel/cluster/profile"
	"evenkeel/internal/chart"
)

// beyond is how far past the last point a figure shows the extrapolation, as a share of
// the last micro-batch.
const beyond = 0.25

// Profile draws a profile as an SVG file: measured points, the fitted line, the curve of Seconds with its extrapolation
// dashed, and below it peak memory where it was measured.
func Profile(p *profile.Profile, path string) error {
	if len(p.Points) == 0 {
		return errors.New("figure: a profile without points cannot be drawn")
	}
	panels := []chart.Panel{{Title: "Forward + backward", XLabel: "micro-batch (samples)", YLabel: "seconds", ZeroY: true, Series: timeSeries(p)}}
	if points := peaks(p); len(points.X) > 0 {
		panels = append(panels, chart.Panel{Title: "Peak memory", XLabel: "micro-batch (samples)", YLabel: "GiB", ZeroY: true, Series: memorySeries(p, points)})
	}
	f := chart.Figure{Title: p.Workload + " on " + p.Device, Panels: panels}
	return f.Save(path)
}

// timeSeries are the fit, the curve, its extrapolation and the measured points.
func timeSeries(p *profile.Profile) []chart.Series {
	points := chart.Series{Name: "measured", Kind: chart.Points}
	curve := chart.Series{Name: "Seconds, smoothed and interpolated", X: []float64{0}, Y: []float64{p.Seconds(0)}}
	for _, q := range p.Points {
		b := float64(q.MicroBatch)
		points.X, points.Y = append(points.X, b), append(points.Y, q.Seconds)
		curve.X, curve.Y = append(curve.X, b), append(curve.Y, p.Seconds(b))
	}
	n := len(curve.X) - 1
	end := curve.X[n] * (1 + beyond)
	tail := chart.Series{X: []float64{curve.X[n], end}, Y: []float64{curve.Y[n], p.Seconds(end)}, Dashed: true}
	fit := chart.Series{Name: fmt.Sprintf("fit, R2 %.4f", p.Fit().R2), Dashed: true, Muted: true}
	const steps = 64 // enough to show where the floor ends
	first := curve.X[1]
	for i := range steps + 1 {
		b := first + (end-first)*float64(i)/steps
		fit.X, fit.Y = append(fit.X, b), append(fit.Y, p.Fit().Seconds(b))
	}
	return []chart.Series{fit, curve, tail, points}
}

const gib = 1 << 30

// peaks are the measured points of peak memory.
func peaks(p *profile.Profile) chart.Series {
	points := chart.Series{Name: "measured", Kind: chart.Points}
	for _, q := range p.Points {
		if q.PeakBytes > 0 {
			points.X, points.Y = append(points.X, float64(q.MicroBatch)), append(points.Y, float64(q.PeakBytes)/gib)
		}
	}
	return points
}

func memorySeries(p *profile.Profile, points chart.Series) []chart.Series {
	last := int(points.X[len(points.X)-1])
	end := max(last+1, int(float64(p.Points[len(p.Points)-1].MicroBatch)*(1+beyond)))
	at := func(s *chart.Series, b int) {
		bytes, _ := p.PeakBytes(b)
		s.X, s.Y = append(s.X, float64(b)), append(s.Y, float64(bytes)/gib)
	}
	curve, tail := chart.Series{Name: "PeakBytes, extended on a line"}, chart.Series{Dashed: true}
	for b := 0; b < last; b += 1 + last/64 {
		at(&curve, b)
	}
	at(&curve, last)
	at(&tail, last)
	at(&tail, end)
	return []chart.Series{curve, tail, points}
}
