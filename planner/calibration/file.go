package calibration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/google/renameio/v2"

	"evenkeel/internal/badinput"
	"evenkeel/planner/costmodel"
)

// errFile is wrapped by errors about calibration files. It is bad input.
var errFile = badinput.New("planner/calibration: invalid calibration")

// version of the file.
const version = 1

// File is a calibration file.
type File struct {
	Version int `json:"version"`
	// Precision and Overlap are the flags under which the measured plans were priced; the calibration holds only under the same flags.
	Precision string             `json:"precision"`
	Overlap   string             `json:"overlap"`
	Devices   map[string]float64 `json:"devices"` // factor on a device's times in the layer profile
	Links     float64            `json:"links"`   // factor on the times of links
	// Memory; all 0 or left out: as without a calibration.
	Activations float64 `json:"activations,omitempty"`
	Working     float64 `json:"working,omitempty"`
	Context     float64 `json:"context_bytes,omitempty"`
	Margin      float64 `json:"margin,omitempty"`
	Plans       []Fit   `json:"plans,omitempty"` // the measured plans
}

// Fit is a measured plan and its prediction with the calibration.
type Fit struct {
	Plan             string  `json:"plan"`
	Seconds          float64 `json:"seconds"`
	PredictedSeconds float64 `json:"predicted_seconds"`
	Peak             float64 `json:"peak_bytes,omitempty"`
	PredictedPeak    float64 `json:"predicted_peak_bytes"`
}

// New finds the calibration of measured plans.
func New(rows []Measured, precision, overlap string) (*File, error) {
	c, err := calibrate(rows)
	if err != nil {
		return nil, err
	}
	f := &File{Version: version, Precision: precision, Overlap: overlap, Devices: c.Compute, Links: c.Links}
	if c.ContextShare == 0 { // memory was measured
		f.Activations, f.Working, f.Context, f.Margin = c.Activations, c.Working, c.Context, c.Margin
	}
	for i := range rows {
		p, err := predict(&rows[i], c)
		if err != nil {
			return nil, err
		}
		f.Plans = append(f.Plans, Fit{rows[i].Name, rows[i].Seconds, p.Simulated, rows[i].Peak, highest(p)})
	}
	return f, nil
}

// Of is the calibration for a cluster with these devices, each of which must have been measured.
func (f *File) Of(devices []string) (costmodel.Calibration, error) {
	c := costmodel.Uncalibrated()
	for _, d := range devices {
		if _, ok := f.Devices[d]; !ok {
			return c, fmt.Errorf("%w: no measured plan used %s, which the cluster has; it has %v. Measure a plan on %s and calibrate again", errFile, d, slices.Sorted(maps.Keys(f.Devices)), d)
		}
	}
	c.Compute, c.Links = f.Devices, f.Links
	if f.Context > 0 {
		c.Activations, c.Gradients, c.Working, c.Context, c.ContextShare, c.Margin = f.Activations, 1, f.Working, f.Context, 0, f.Margin
	}
	return c, nil
}

// Write writes the file at path in one piece.
func (f *File) Write(path string) error {
	data, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return fmt.Errorf("planner/calibration: %w", err)
	}
	return renameio.WriteFile(path, append(data, '\n'), 0o644)
}

// Open reads the calibration file at path.
func Open(path string) (*File, error) {
	data, err := readFile(path, errFile)
	if err != nil {
		return nil, err
	}
	return decode(data, path)
}

func decode(data []byte, name string) (*File, error) {
	bad := func(format string, args ...any) (*File, error) {
		return nil, fmt.Errorf("%s: %w: %s", name, errFile, fmt.Sprintf(format, args...))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	f := &File{}
	if err := d.Decode(f); err != nil {
		return bad("%v; evenkeel plan calibrate writes such files", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("more text after the object")
	}
	if f.Version != version {
		return bad("version is %d; this program reads %d", f.Version, version)
	}
	if err := f.check(); err != nil {
		return bad("%v", err)
	}
	return f, nil
}

// check reports the first number that is out of range.
func (f *File) check() error {
	if len(f.Devices) == 0 {
		return errors.New("devices is empty; want the factor of each device")
	}
	factor := func(v float64) bool { return v > 0 && v <= 1e6 }
	for device, v := range f.Devices {
		if device == "" || !factor(v) {
			return fmt.Errorf("devices.%.40s is %v; want a factor above 0, up to 1e6", device, v)
		}
	}
	if !factor(f.Links) {
		return fmt.Errorf("links is %v; want a factor above 0, up to 1e6", f.Links)
	}
	if f.Context == 0 && f.Activations == 0 && f.Working == 0 && f.Margin == 0 {
		return nil
	}
	if !factor(f.Activations) || !factor(f.Working) || !(f.Context > 0 && f.Context <= 1e18) || !(f.Margin >= 0 && f.Margin <= 10) {
		return fmt.Errorf("activations %v, working %v, context_bytes %v, margin %v; want all above 0 and a margin of 0 to 10, or none of them", f.Activations, f.Working, f.Context, f.Margin)
	}
	return nil
}
