// Package chart draws the project's figures in one style: panels stacked above each other,
// a title and a legend over each, colours that colour-blind readers can tell apart.
// See the Example.
//
// Learning curves and performance profiles are a Line and a Band per policy. A front is
// its Points and a Step without a name; where more of X is better, in descending order of X.
//
// A figure is data: nothing is drawn before Save, which writes the file in one piece or
// not at all. The same figure gives the same bytes.
package chart

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"evenkeel/internal/badinput"
)

// Errors that Save wraps.
var (
	ErrExtension = badinput.New("chart: the file name must end in .svg")
	ErrData      = errors.New("chart: cannot draw this data")
)

// Kind is how a series is drawn and which of its slices it needs.
type Kind int

const (
	Line   Kind = iota // X, Y: a line through the points
	Points             // X, Y: dots
	Step               // X, Y: a line that keeps each value until the next X, which may be lower
	Band               // X, Low, High: a translucent area
	Bars               // Y: a bar per category of the panel, the panel's only series; Low and High, where given, whiskers
	Boxes              // X, Y: left and right edges; Low, High: edges on the y axis, which runs downwards
)

// Series is one set of data in a panel. The slices a kind needs have one length; every
// value is finite, and X above zero on a logarithmic axis.
type Series struct {
	Name      string // in the legend; a series without a name takes the colour of the one before
	Kind      Kind
	X, Y      []float64
	Low, High []float64 // absolute values, not distances from Y
	Dashed    bool      // of Line and Step; of Points: rings. From the eighth colour on always
	Accent    []bool    // of Bars, may be left out: those in the first colour
	Muted     bool      // grey and without a colour of its own: references, fits, diagonals
}

// Panel is one coordinate system.
type Panel struct {
	Title          string // may be empty
	XLabel, YLabel string
	Categories     []string // names of the bars, or of y = 0, 1, ... beside boxes; the panel's series are all of that kind
	LogX           bool
	ZeroY          bool   // the y axis shows zero
	Zero           string // name of a line at zero, in the legend; "": none
	Series         []Series
}

// Figure is a column of panels.
type Figure struct {
	Title  string // may be empty
	Panels []Panel
}

// maxValue keeps sums and axis ranges finite.
const maxValue = 1e100

// Save draws the figure into an SVG file. An existing file is
// replaced only when the new one is complete. Errors wrap ErrExtension or ErrData, or come
// from the file system.
func (f Figure) Save(path string) error {
	if err := f.validate(); err != nil {
		return err
	}
	if strings.ToLower(filepath.Ext(path)) != ".svg" {
		return fmt.Errorf("%w: %q", ErrExtension, path)
	}
	return renameio.WriteFile(path, f.svg(), 0o644)
}

func (f Figure) validate() error {
	if len(f.Panels) == 0 {
		return fmt.Errorf("%w: no panel", ErrData)
	}
	for i, p := range f.Panels {
		if p.Zero != "" && p.boxes() {
			return fmt.Errorf("%w: panel %d: a line at zero on an axis that has none", ErrData, i+1)
		}
		for j, s := range p.Series {
			if text := s.problem(p); text != "" {
				return fmt.Errorf("%w: panel %d, series %d (%q): %s", ErrData, i+1, j+1, s.Name, text)
			}
		}
		if len(p.Series) == 0 {
			return fmt.Errorf("%w: panel %d: no series", ErrData, i+1)
		}
	}
	return nil
}

// problem says why a panel cannot show the series, "" if it can.
func (s Series) problem(p Panel) string {
	if (s.Kind == Bars || s.Kind == Boxes) != (len(p.Categories) > 0) || len(p.Categories) > 0 && s.Kind != p.Series[0].Kind {
		return "bars or boxes, and only they, belong in a panel with categories"
	}
	if s.Kind == Bars && len(p.Series) > 1 {
		return "bars must be the only series of their panel"
	}
	n, edges := len(s.X), s.Kind == Band || s.Kind == Boxes || s.whiskers()
	if s.Kind == Bars {
		n = len(p.Categories)
	}
	if n == 0 {
		return "no values"
	}
	if len(s.Accent) > 0 && (s.Kind != Bars || len(s.Accent) != n) {
		return fmt.Sprintf("%d accents, want %d, and only of bars", len(s.Accent), n)
	}
	for _, x := range []struct {
		name   string
		values []float64
		needed bool
	}{{"X", s.X, s.Kind != Bars}, {"Y", s.Y, s.Kind != Band}, {"Low", s.Low, edges}, {"High", s.High, edges}} {
		if x.needed && len(x.values) != n {
			return fmt.Sprintf("%d values of %s, want %d", len(x.values), x.name, n)
		}
		if text := valueProblem(x.name, x.values, x.name == "X" && p.LogX); text != "" {
			return text
		}
	}
	return ""
}

// valueProblem says what is wrong with the values of a slice, "" if nothing.
func valueProblem(name string, values []float64, logarithmic bool) string {
	for i, v := range values {
		if math.IsNaN(v) || math.Abs(v) > maxValue {
			return fmt.Sprintf("%s[%d] is %g", name, i, v)
		}
		if v <= 0 && logarithmic {
			return fmt.Sprintf("%s[%d] is %g on a logarithmic axis", name, i, v)
		}
	}
	return ""
}

func (s Series) whiskers() bool { return s.Kind == Bars && len(s.Low)+len(s.High) > 0 }
