// Package lengths has the lengths of samples in data sets: measured distributions, and lists of your own. A simulator
// draws the costs of samples from them. SOURCES.md has the sources of the measured ones.
package lengths

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lengths says how long samples are, in tokens or any other unit of cost; only their
// proportions count. The zero value: all cost the same.
type Lengths struct {
	Data   string    `yaml:"data,omitempty" json:"data,omitempty"`     // a measured distribution, of Names
	Values []float64 `yaml:"values,omitempty" json:"values,omitempty"` // each as likely as the others; beside Data: none
}

// Bounds of Values.
const (
	MaxValues = 4096
	MaxValue  = 1e9
)

// Set says whether samples differ.
func (l *Lengths) Set() bool { return l.Data != "" || len(l.Values) > 0 }

// Costs is what samples cost, over their mean, each value as likely as the others; nil
// where all cost the same. Lengths must be valid.
func (l *Lengths) Costs() []float64 {
	values := l.Values
	if l.Data != "" {
		values = measured[l.Data]
	}
	if len(values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	costs := make([]float64, len(values))
	for i, v := range values {
		costs[i] = v * float64(len(values)) / sum
	}
	return costs
}

// Fault is the first thing that is wrong, with its field; "", "" where all is well.
func (l *Lengths) Fault() (field, text string) {
	if l.Data != "" && len(l.Values) > 0 {
		return "values", "stand beside data; leave one of the two out"
	}
	if _, ok := measured[l.Data]; !ok && l.Data != "" {
		return "data", fmt.Sprintf("is %q; known lengths: %s; or list your own by values", clip(l.Data), strings.Join(Names(), ", "))
	}
	if l.Values != nil && len(l.Values) == 0 {
		return "values", "are none; list lengths, or leave them out"
	}
	if n := len(l.Values); n > MaxValues {
		return "values", fmt.Sprintf("lists %d lengths; at most %d, quantiles of yours will do", n, MaxValues)
	}
	for i, v := range l.Values {
		if !(v > 0 && v <= MaxValue) {
			return fmt.Sprintf("values[%d]", i), fmt.Sprintf("is %v; a length lies above 0 and up to %g", v, MaxValue)
		}
	}
	return "", ""
}

func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}

// Names lists the measured distributions.
func Names() []string { return slices.Clone(names) }

//go:embed lengths.csv
var table string

var names, measured = parse(table)

// Bins is the number of values of a measured distribution: means of so many equal parts of
// its sorted lengths.
const Bins = 256

// parse reads the embedded table: name,length. Compress makes it, so a fault in it is a fault of the
// program.
func parse(table string) ([]string, map[string][]float64) {
	var names []string
	values := map[string][]float64{}
	for line := range strings.Lines(table) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ",")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue // the header
		}
		if values[name] == nil {
			names = append(names, name)
		}
		values[name] = append(values[name], v)
	}
	return names, values
}

// Compress is Bins values for the lengths of a data set, at least as many: the mean of each of
// so many equal parts, to five digits, which keeps their mean.
func Compress(all []float64) []float64 {
	sorted := slices.Sorted(slices.Values(all))
	out := make([]float64, Bins)
	for k := range out {
		part := sorted[k*len(sorted)/Bins : (k+1)*len(sorted)/Bins]
		for _, v := range part {
			out[k] += v
		}
		out[k], _ = strconv.ParseFloat(strconv.FormatFloat(out[k]/math.Max(1, float64(len(part))), 'g', 5, 64), 64)
	}
	return out
}
