package figure

import (
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/internal/chart"
)

// maxProfiles is the number of profiles one figure can tell apart.
const maxProfiles = 7

// beyond is how far past the last point a figure shows the extrapolation, as a share of
// the last micro-batch.
const beyond = 0.25

// Profiles draws the profiles into one figure, SVG or PNG by the file's extension: measured
// points, the curve of Seconds with its extrapolation dashed, and below it peak memory
// where it was measured. A single profile also shows its fitted line.
func Profiles(profiles []*profile.Profile, path string) error {
	if len(profiles) == 0 || len(profiles) > maxProfiles {
		return fmt.Errorf("figure: %d profiles to draw, want 1 to %d", len(profiles), maxProfiles)
	}
	time := chart.Panel{Title: "Forward + backward", XLabel: "micro-batch (samples)", YLabel: "seconds", ZeroY: true}
	memory := chart.Panel{Title: "Peak memory", XLabel: "micro-batch (samples)", YLabel: "GiB", ZeroY: true}
	alone := len(profiles) == 1
	name, title := naming(profiles)
	for _, p := range profiles {
		if len(p.Points) == 0 {
			return errors.New("figure: a profile without points cannot be drawn")
		}
		name := name(p)
		time.Series = append(time.Series, timeSeries(p, name, alone)...)
		if len(peaks(p).X) > 0 {
			memory.Series = append(memory.Series, memorySeries(p, name, alone)...)
		}
	}
	f := chart.Figure{Title: title, Panels: []chart.Panel{time}}
	if len(memory.Series) > 0 {
		f.Panels = append(f.Panels, memory)
	}
	return f.Save(path)
}

// naming puts what all profiles share into the title and leaves the rest to the legend.
func naming(profiles []*profile.Profile) (name func(*profile.Profile) string, title string) {
	first := profiles[0]
	oneDevice, oneWorkload := true, true
	for _, p := range profiles {
		oneDevice = oneDevice && p.Device == first.Device
		oneWorkload = oneWorkload && p.Workload == first.Workload
	}
	switch {
	case oneDevice && oneWorkload:
		return func(p *profile.Profile) string { return p.Source }, first.Workload + " on " + first.Device
	case oneWorkload:
		return func(p *profile.Profile) string { return p.Device }, first.Workload
	case oneDevice:
		return func(p *profile.Profile) string { return p.Workload }, first.Device
	}
	return func(p *profile.Profile) string { return p.Workload + " on " + p.Device }, "Measured profiles"
}

// timeSeries names the curve, and by it the points in the same colour; alone, each part
// has a name of its own.
func timeSeries(p *profile.Profile, name string, alone bool) []chart.Series {
	points := chart.Series{Kind: chart.Points}
	curve := chart.Series{Name: name, X: []float64{0}, Y: []float64{p.Seconds(0)}}
	for _, q := range p.Points {
		b := float64(q.MicroBatch)
		points.X, points.Y = append(points.X, b), append(points.Y, q.Seconds)
		curve.X, curve.Y = append(curve.X, b), append(curve.Y, p.Seconds(b))
	}
	n := len(curve.X) - 1
	end := curve.X[n] * (1 + beyond)
	tail := chart.Series{X: []float64{curve.X[n], end}, Y: []float64{curve.Y[n], p.Seconds(end)}, Dashed: true}
	if !alone {
		return []chart.Series{curve, points, tail}
	}
	curve.Name = "Seconds, smoothed and interpolated"
	fit := chart.Series{Name: fmt.Sprintf("fit, R2 %.4f", p.Fit().R2), Dashed: true, Muted: true}
	const steps = 64 // enough to show where the floor ends
	first := curve.X[1]
	for i := range steps + 1 {
		b := first + (end-first)*float64(i)/steps
		fit.X, fit.Y = append(fit.X, b), append(fit.Y, p.Fit().Seconds(b))
	}
	return []chart.Series{fit, curve, tail, named(points, "measured")}
}

const gib = 1 << 30

// peaks are the measured points of peak memory.
func peaks(p *profile.Profile) chart.Series {
	points := chart.Series{Kind: chart.Points}
	for _, q := range p.Points {
		if q.PeakBytes > 0 {
			points.X, points.Y = append(points.X, float64(q.MicroBatch)), append(points.Y, float64(q.PeakBytes)/gib)
		}
	}
	return points
}

func memorySeries(p *profile.Profile, name string, alone bool) []chart.Series {
	points := peaks(p)
	last := int(points.X[len(points.X)-1])
	end := max(last+1, int(float64(p.Points[len(p.Points)-1].MicroBatch)*(1+beyond)))
	at := func(s *chart.Series, b int) {
		bytes, _ := p.PeakBytes(b)
		s.X, s.Y = append(s.X, float64(b)), append(s.Y, float64(bytes)/gib)
	}
	curve, tail := chart.Series{Name: name}, chart.Series{Dashed: true}
	for b := 0; b < last; b += 1 + last/64 {
		at(&curve, b)
	}
	at(&curve, last)
	at(&tail, last)
	at(&tail, end)
	if !alone {
		return []chart.Series{curve, points, tail}
	}
	curve.Name = "PeakBytes, extended on a line"
	return []chart.Series{curve, tail, named(points, "measured")}
}

func named(s chart.Series, name string) chart.Series {
	s.Name = name
	return s
}
