package profile

import (
	"fmt"
	"math"
)

// Limits of what a profile may hold. Beyond them the unit is wrong: a micro-batch of a
// million samples or a step of a week is not a measurement.
const (
	maxMicroBatch = 1_000_000 // samples
	minSeconds    = 1e-9      // seconds of one micro-batch
	maxSeconds    = 1e6       // seconds of one micro-batch
	maxPeakBytes  = 1 << 50   // bytes of one device
	maxPoints     = 4096      // points of one profile
	maxName       = 64        // bytes of a device's or workload's name
)

// Point is one measurement.
type Point struct {
	MicroBatch int     `json:"micro_batch"` // samples, 1..1,000,000
	Seconds    float64 `json:"seconds"`     // forward + backward of the micro-batch, 1e-9..1e6
	PeakBytes  int64   `json:"peak_bytes"`  // peak memory of the micro-batch, up to 1 PiB; 0: not measured
}

// Profile holds the measurements of one workload on one device, and the curves through
// them. Make one with New or take it from a Catalogue; treat it as read-only, because
// catalogues share it. The methods are safe for concurrent use.
type Profile struct {
	Device   string  `json:"device"`
	Workload string  `json:"workload"`
	Points   []Point `json:"points"`         // micro-batch strictly increasing, as measured
	Source   string  `json:"source"`         // key of a Source of the catalogue, or the user's file
	Note     string  `json:"note,omitempty"` // how the points came from the source, for people

	time     curve
	memory   memory
	fit      Fit
	smoothed int // points that isotonic smoothing moved
}

// New builds a profile from points with strictly increasing micro-batches. The error
// says which point breaks which rule.
func New(device, workload string, points []Point, source string) (*Profile, error) {
	for _, n := range [...]struct{ field, name string }{{"device", device}, {"workload", workload}} {
		if text := nameProblem(n.name); text != "" {
			return nil, fmt.Errorf("profile: %s: %s", n.field, text)
		}
	}
	if len(points) == 0 || len(points) > maxPoints {
		return nil, fmt.Errorf("profile: %s on %s: %d points, want 1 to %d", workload, device, len(points), maxPoints)
	}
	for i, q := range points {
		text := ""
		switch {
		case q.MicroBatch < 1 || q.MicroBatch > maxMicroBatch:
			text = fmt.Sprintf("micro-batch outside 1 to %d", maxMicroBatch)
		case i > 0 && q.MicroBatch <= points[i-1].MicroBatch:
			text = fmt.Sprintf("micro-batch does not increase after %d", points[i-1].MicroBatch)
		case !(q.Seconds >= minSeconds && q.Seconds <= maxSeconds):
			text = fmt.Sprintf("%v seconds, want %g to %g", q.Seconds, float64(minSeconds), float64(maxSeconds))
		case q.PeakBytes < 0 || q.PeakBytes > maxPeakBytes:
			text = fmt.Sprintf("%d peak bytes, want 0 to %d", q.PeakBytes, int64(maxPeakBytes))
		}
		if text != "" {
			return nil, fmt.Errorf("profile: %s on %s: point %d (micro-batch %d): %s", workload, device, i+1, q.MicroBatch, text)
		}
	}
	p := &Profile{Device: device, Workload: workload, Points: append([]Point(nil), points...), Source: source}
	p.build()
	return p, nil
}

// build computes the curves from valid Points.
func (p *Profile) build() {
	p.fit = fitTime(p.Points)
	x, y := make([]float64, len(p.Points)), make([]float64, len(p.Points))
	for i, q := range p.Points {
		x[i], y[i] = float64(q.MicroBatch), q.Seconds
	}
	p.smoothed = isotonic(y)
	p.time = newCurve(x, y, p.fit.FloorPoints > 0)
	if len(p.Points) == 1 || !(p.fit.Beta > 0) {
		p.fit.Beta = p.time.last()
	}
	p.memory = newMemory(p.Points)
	p.fit.MemoryR2 = p.memory.r2
}

// Seconds is the time of forward and backward of a micro-batch of b samples: linear
// between the measured points after smoothing, never decreasing, and beyond the last
// one a straight line (see Extrapolated). b may be fractional; at b <= 0 it is the
// overhead that the curve shows at no samples.
func (p *Profile) Seconds(b float64) float64 { return p.time.seconds(b) }

// Samples is the inverse of Seconds: the largest b with Seconds(b) <= seconds, the
// right end where the curve is flat, 0 where even the overhead takes longer. It is
// exact at measured points and within rounding elsewhere.
func (p *Profile) Samples(seconds float64) float64 { return p.time.samples(seconds) }

// PerSample is the marginal cost of one more sample in seconds, always above 0: the
// slope of the fitted line, or of the extrapolation if the fitted slope is not above 0.
func (p *Profile) PerSample() float64 { return p.fit.Beta }

// Extrapolated reports whether b lies outside the measured micro-batches.
func (p *Profile) Extrapolated(b int) bool {
	n := len(p.Points)
	return n == 0 || b < p.Points[0].MicroBatch || b > p.Points[n-1].MicroBatch
}

// PeakBytes is the predicted peak memory of a micro-batch of b samples, and whether peak
// memory was measured at all. It is not below a measured point and does not decrease: linear
// between points, and beyond the last one a line with the least-squares slope of the upper
// half. With a single point it is proportional above the point and constant below.
func (p *Profile) PeakBytes(b int) (int64, bool) {
	if len(p.memory.x) == 0 {
		return 0, false
	}
	return p.memory.peak(b), true
}

// NoLimit is the MemoryLimit of a profile that memory does not bound.
const NoLimit = math.MaxInt

// MemoryLimit is the largest micro-batch whose PeakBytes fit into bytes, 0 if not even
// one sample fits, NoLimit if peak memory was not measured or maxMicroBatch still fits.
func (p *Profile) MemoryLimit(bytes int64) int { return p.memory.limit(bytes) }

// Fit is the straight line through the points, with its quality.
func (p *Profile) Fit() Fit { return p.fit }
