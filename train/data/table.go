// Package data has the data sets of package train: images of digits (embedded), tables of numbers, text, and
// synthetic samples of any number. All of them number their samples, so that an order of numbers is an order of the
// data.
// See the Example for their use.
package data

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the digits
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"evenkeel/internal/badinput"
)

// errFormat marks files that cannot be read as data.
var errFormat = badinput.New("data: cannot read")

// Limits of what is read.
const (
	maxFileBytes = 1 << 30
	maxClasses   = 1 << 20
)

// Set is numbered samples.
type Set interface {
	// Len is the number of samples.
	Len() int
	// Shape is a sample's floats and targets; tokens is how many different tokens the inputs are, 0 for any number.
	Shape() (inputs, targets, classes, tokens int)
	// Sample writes sample i, the same whenever it is asked for.
	Sample(i int, inputs []float32, targets []int32)
}

// Table is rows of numbers, each with its class.
type Table struct {
	x       []float32
	y       []int32
	width   int
	classes int
}

//go:embed digits/digits.csv.gz
var digits []byte

// Digits is the UCI set of handwritten digits (E. Alpaydin and C. Kaynak, 1998): 1,797 images of 8 x 8 pixels from 0
// to 1, ten classes.
func Digits() (*Table, error) {
	z, err := gzip.NewReader(bytes.NewReader(digits))
	if err != nil {
		return nil, fmt.Errorf("data: digits: %w", err)
	}
	t, err := read(z, "digits")
	if err != nil {
		return nil, err
	}
	for i := range t.x {
		t.x[i] /= 16
	}
	return t, nil
}

// CSV reads comma-separated numbers, in the last column the class, a whole number from 0. A first line that is no
// numbers names the columns. Each column is brought to mean 0 and deviation 1. Errors are bad input and name the line.
func CSV(r io.Reader, name string) (*Table, error) {
	t, err := read(r, name)
	if err != nil {
		return nil, err
	}
	for c := range t.width {
		var mean, variance float64
		for i := range t.y {
			mean += float64(t.x[i*t.width+c]) / float64(len(t.y))
		}
		for i := range t.y {
			d := float64(t.x[i*t.width+c]) - mean
			variance += d * d / float64(len(t.y))
		}
		scale := 1.0
		if variance > 0 {
			scale = 1 / math.Sqrt(variance)
		}
		for i := range t.y {
			at := i*t.width + c
			t.x[at] = float32((float64(t.x[at]) - mean) * scale)
		}
	}
	return t, nil
}

// read reads the numbers as they are.
func read(r io.Reader, name string) (*Table, error) {
	limited := &io.LimitedReader{R: r, N: maxFileBytes + 1}
	lines := csv.NewReader(limited)
	lines.ReuseRecord = true
	lines.TrimLeadingSpace = true
	t := &Table{}
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) && limited.N > 0 {
			break
		}
		if limited.N <= 0 {
			return nil, fmt.Errorf("%w: %s: larger than %d bytes", errFormat, name, maxFileBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errFormat, name, err)
		}
		if first {
			t.width = len(fields) - 1
			if t.width < 1 {
				return nil, fmt.Errorf("%w: %s: line 1 has one column; want numbers and, last, a class", errFormat, name)
			}
			if _, err := strconv.ParseFloat(fields[0], 32); err != nil {
				continue
			}
		}
		if err := t.add(fields); err != nil {
			line, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("%w: %s: line %d, %w", errFormat, name, line, err)
		}
	}
	if len(t.y) == 0 {
		return nil, fmt.Errorf("%w: %s: no samples", errFormat, name)
	}
	return t, nil
}

func (t *Table) add(fields []string) error {
	for i, field := range fields[:t.width] {
		x, err := strconv.ParseFloat(field, 32)
		if err != nil || math.IsNaN(x) || math.Abs(x) > 1e18 {
			return fmt.Errorf("column %d: %.40q is not a number up to 1e18", i+1, field)
		}
		t.x = append(t.x, float32(x))
	}
	class, err := strconv.Atoi(fields[t.width])
	if err != nil || class < 0 || class >= maxClasses {
		return fmt.Errorf("column %d: %.40q is no class; want a whole number from 0 to %d", t.width+1, fields[t.width], maxClasses-1)
	}
	t.y = append(t.y, int32(class))
	t.classes = max(t.classes, class+1)
	return nil
}

// Len is Set's.
func (t *Table) Len() int { return len(t.y) }

// Shape is Set's.
func (t *Table) Shape() (inputs, targets, classes, tokens int) { return t.width, 1, t.classes, 0 }

// Sample is Set's.
func (t *Table) Sample(i int, inputs []float32, targets []int32) {
	copy(inputs, t.x[i*t.width:][:t.width])
	targets[0] = t.y[i]
}
