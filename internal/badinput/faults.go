package badinput

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with what the user gave.
type Fault struct {
	Path string // of the field: nodes[1].count
	Text string // what is wrong with it
	Line int    // in a file; 0: that of the field
}

// Faults lists everything that is wrong, so that all of it can be mended at once.
type Faults []Fault

// Add notes a fault of the field at path.
func (f *Faults) Add(path, format string, args ...any) {
	*f = append(*f, Fault{Path: path, Text: fmt.Sprintf(format, args...)})
}

// Within notes a value outside least..most, NaN included.
func (f *Faults) Within(path string, v, least, most float64) {
	if math.IsNaN(v) || v < least || v > most {
		f.Add(path, "is %s; it must lie in %s..%s", Number(v), Number(least), Number(most))
	}
}

// Under adds the faults that an error of Err lists, with prefix before their paths.
func (f *Faults) Under(prefix string, err error) {
	var others Faults
	errors.As(err, &others)
	for _, o := range others {
		o.Path = prefix + o.Path
		*f = append(*f, o)
	}
}

// Err is the faults as one error, nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return mark{f}
}

// Error has a line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Path + " " + fault.Text
	}
	return strings.Join(lines, "\n")
}

// Number writes v without an exponent where that stays readable.
func Number(v float64) string {
	if a := math.Abs(v); a >= 1e-4 && a < 1e12 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
