package profile

import "fmt"

// SeriesReport says how good one profile's points are.
type SeriesReport struct {
	Device       string   `json:"device"`
	Workload     string   `json:"workload"`
	Source       string   `json:"source"` // file, or key of a Source
	Points       int      `json:"points"`
	First        int      `json:"first"` // smallest and largest micro-batch measured
	Last         int      `json:"last"`
	Fit          Fit      `json:"fit"`
	PerSample    float64  `json:"per_sample"`    // seconds
	Smoothed     int      `json:"smoothed"`      // points moved to make the time non-decreasing
	MemoryPoints int      `json:"memory_points"` // points with peak bytes
	MemoryKnown  bool     `json:"memory_known"`
	Warnings     []string `json:"warnings"` // empty if there are none
}

// Thresholds of the warnings.
const (
	lowR2       = 0.95
	farSamples  = 2 // times the last measured micro-batch
	highRelErr  = 0.25
	fewForSlope = 3
)

// Check reads a profile file, or a folder's *.csv, as Catalogue.Add would and reports on
// every series in it, in the order of the files. Errors are those of Add.
func Check(path string) ([]SeriesReport, error) {
	read, err := readPath(path)
	if err != nil {
		return nil, err
	}
	c := Embedded()
	c.put(read)
	out := make([]SeriesReport, 0, len(read))
	for _, p := range read {
		out = append(out, c.Report(p))
	}
	return out, nil
}

// Report says how good a profile is; the catalogue knows the device's memory.
func (c *Catalogue) Report(p *Profile) SeriesReport {
	n := len(p.Points)
	r := SeriesReport{
		Device: p.Device, Workload: p.Workload, Source: p.Source,
		Points: n, Fit: p.fit, PerSample: p.PerSample(), Smoothed: p.smoothed,
		MemoryPoints: len(p.memory.x), MemoryKnown: len(p.memory.x) > 0,
		Warnings: []string{},
	}
	if n == 0 {
		return r
	}
	r.First, r.Last = p.Points[0].MicroBatch, p.Points[n-1].MicroBatch
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	switch {
	case n == 1:
		warn("one point: the time is taken as proportional to the micro-batch; measure a second size")
	case n < fewForSlope:
		warn("two points: noise in either tilts the whole curve")
	}
	if r.Fit.R2 < lowR2 {
		warn("R2 %.3f is below %.2f: the points lie far from a line, measure again with more warm-up and repetitions", r.Fit.R2, lowR2)
	}
	if r.Fit.MaxRelError > highRelErr {
		warn("a point lies %.0f%% off the fitted line", 100*r.Fit.MaxRelError)
	}
	if r.Smoothed > 0 {
		warn("%d of %d points moved: the time falls there while the micro-batch grows", r.Smoothed, n)
	}
	if r.First > 1 {
		warn("micro-batches below %d are extrapolated", r.First)
	}
	d, _ := c.Device(p.Device)
	switch r.MemoryPoints {
	case 0:
		warn("no peak memory: the micro-batch has no memory limit")
	case 1:
		warn("one peak memory: taken as proportional to the micro-batch")
	}
	limit := NoLimit
	if d.MemoryBytes > 0 {
		limit = p.MemoryLimit(d.MemoryBytes)
	}
	switch {
	case limit == NoLimit:
		warn("time was measured to %d: beyond that it is extrapolated", r.Last)
	case limit > farSamples*r.Last:
		warn("memory allows micro-batches up to %d, time was measured to %d: beyond that both are extrapolated", limit, r.Last)
	}
	return r
}
