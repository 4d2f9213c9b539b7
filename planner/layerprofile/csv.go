package layerprofile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxProfileBytes is the size of the largest file.
const maxProfileBytes = 256 << 20

// Load reads a layer profile from a CSV file; see docs/reference/formats/layer-profile.md.
func Load(path string) (*Profile, error) {
	s, err := load(path)
	if err != nil {
		return nil, err
	}
	return s.profile, s.profile.Finish(path)
}

func load(path string) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("layerprofile: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrProfile)
	}
	return read(f, path)
}

// source is a profile as its file has it, before Finish.
type source struct {
	name    string
	profile *Profile
	lines   [][]int // by layer and run
}

// Read reads a layer profile in CSV; the model is named after the file. Errors wrap ErrProfile and name the line.
func Read(r io.Reader, name string) (*Profile, error) {
	s, err := read(r, name)
	if err != nil {
		return nil, err
	}
	return s.profile, s.profile.Finish(name)
}

func read(r io.Reader, name string) (*source, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxProfileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("layerprofile: %s: %w", name, err)
	}
	if len(text) > maxProfileBytes {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrProfile, maxProfileBytes)
	}
	s := &source{name: name, profile: &Profile{Model: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))}}
	if err := s.readRows(bytes.TrimPrefix(text, []byte("\ufeff"))); err != nil {
		return nil, err
	}
	return s, s.once()
}

func (s *source) readRows(text []byte) error {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.Comment, rows.TrimLeadingSpace, rows.ReuseRecord = '#', true, true
	p := s.profile
	var at map[string]int
	var runs int
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", s.name, ErrProfile, err)
		}
		line, _ := rows.FieldPos(0)
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %w: %s", s.name, line, ErrProfile, fmt.Sprintf(format, args...))
		}
		if at == nil {
			if at, err = locate(record); err != nil {
				return bad("%s", err)
			}
			continue
		}
		var l Layer
		var run Run
		first, last, err := readRow(record, at, &l, &run)
		if err != nil {
			return bad("%s", err)
		}
		if runs += last - first + 1; runs > maxRuns {
			return bad("more than %d measurements", maxRuns)
		}
		for len(p.Layers) <= last {
			p.Layers, s.lines = append(p.Layers, Layer{Parameters: -1}), append(s.lines, nil)
		}
		for i := first; i <= last; i++ {
			had := &p.Layers[i]
			if had.Parameters < 0 {
				*had = l
			} else if !had.describes(&l) {
				return bad("layer %d has %s and the name %q; an earlier line says %s and %q", i, l.sizes(), l.Name, had.sizes(), had.Name)
			}
			had.Runs, s.lines[i] = append(had.Runs, run), append(s.lines[i], line)
		}
	}
	for i, l := range p.Layers {
		if l.Parameters < 0 {
			return fmt.Errorf("%s: %w: layer %d is missing; layers are numbered from 0 without gaps", s.name, ErrProfile, i)
		}
	}
	return nil
}

type column struct {
	name     string
	optional bool                   // may be left out or empty, which means 0
	field    func(*Layer, *Run) any // the *string, *int or *float64 that it holds
}

// columns are all columns except layer. A file may have them in any order.
var columns = []column{
	{name: "name", optional: true, field: func(l *Layer, _ *Run) any { return &l.Name }},
	{name: "parameters", field: func(l *Layer, _ *Run) any { return &l.Parameters }},
	{name: "output_bytes", field: func(l *Layer, _ *Run) any { return &l.Output }},
	{name: "device", field: func(_ *Layer, r *Run) any { return &r.Device }},
	{name: "tensor", field: func(_ *Layer, r *Run) any { return &r.Tensor }},
	{name: "micro_batch", field: func(_ *Layer, r *Run) any { return &r.MicroBatch }},
	{name: "forward_seconds", field: func(_ *Layer, r *Run) any { return &r.Forward }},
	{name: "backward_seconds", optional: true, field: func(_ *Layer, r *Run) any { return &r.Backward }},
	{name: "update_seconds", optional: true, field: func(_ *Layer, r *Run) any { return &r.Update }},
	{name: "activation_bytes", field: func(_ *Layer, r *Run) any { return &r.Activation }},
	{name: "fixed_bytes", optional: true, field: func(_ *Layer, r *Run) any { return &r.Fixed }},
	{name: "selective_seconds", optional: true, field: func(_ *Layer, r *Run) any { return &r.Selective }},
	{name: "selective_bytes", optional: true, field: func(_ *Layer, r *Run) any { return &r.Freed }},
	{name: "sequence_bytes", optional: true, field: func(_ *Layer, r *Run) any { return &r.Sequence }},
	{name: "machines", optional: true, field: func(_ *Layer, r *Run) any { return &r.Machines }},
	{name: "tied_parameters", optional: true, field: func(l *Layer, _ *Run) any { return &l.Tied }},
	{name: "context_bytes", optional: true, field: func(l *Layer, _ *Run) any { return &l.Context }},
	{name: "experts", optional: true, field: func(l *Layer, _ *Run) any { return &l.Experts }},
	{name: "expert_parameters", optional: true, field: func(l *Layer, _ *Run) any { return &l.ExpertParameters }},
	{name: "expert_bytes", optional: true, field: func(l *Layer, _ *Run) any { return &l.ExpertBytes }},
}

func columnNames() string {
	all := []string{"layer"}
	for _, c := range columns {
		all = append(all, c.name)
	}
	return strings.Join(all, ",")
}

// locate finds the number of each column in the header of a file.
func locate(record []string) (at map[string]int, err error) {
	at = map[string]int{}
	for i, name := range record {
		if name != "layer" && !slices.ContainsFunc(columns, func(c column) bool { return c.name == name }) {
			return nil, fmt.Errorf("column %q is not known; the columns are %s", name, columnNames())
		}
		if _, twice := at[name]; twice {
			return nil, fmt.Errorf("column %s is given twice", name)
		}
		at[name] = i
	}
	for _, c := range append([]column{{name: "layer"}}, columns...) {
		if _, ok := at[c.name]; !ok && !c.optional {
			return nil, fmt.Errorf("column %s is missing; the columns are %s", c.name, columnNames())
		}
	}
	return at, nil
}

// readRow reads a line: a measurement of layers first to last, and the sizes of these layers.
func readRow(record []string, at map[string]int, l *Layer, r *Run) (first, last int, err error) {
	if first, last, err = readLayers(record[at["layer"]]); err != nil {
		return 0, 0, err
	}
	for _, c := range columns {
		i, ok := at[c.name]
		if !ok || c.optional && record[i] == "" {
			continue
		}
		if err := c.read(record[i], l, r); err != nil {
			return 0, 0, err
		}
	}
	return first, last, nil
}

func (c *column) read(text string, l *Layer, r *Run) (err error) {
	switch v := c.field(l, r).(type) {
	case *string:
		*v = text
	case *int:
		least := 1
		if c.optional {
			least = 0
		}
		if *v, err = strconv.Atoi(text); err != nil || *v < least {
			return fmt.Errorf("%s is %q; want a whole number of at least %d", c.name, text, least)
		}
	case *float64:
		if *v, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(*v) || math.IsInf(*v, 0) || *v < 0 {
			return fmt.Errorf("%s is %q; want a number of at least 0", c.name, text)
		}
	}
	return nil
}

// readLayers reads a number, or a range such as 1-24 of equal layers.
func readLayers(text string) (first, last int, err error) {
	a, b, isRange := strings.Cut(text, "-")
	first, err = strconv.Atoi(a)
	last = first
	if isRange && err == nil {
		last, err = strconv.Atoi(b)
	}
	if err != nil || first < 0 || last < first || last >= MaxLayers {
		return 0, 0, fmt.Errorf("layer is %q; want a number from 0, or a range as 1-24, below %d", text, MaxLayers)
	}
	return first, last, nil
}

// written is the field as text; it may be empty if the column is optional.
func (c *column) written(l *Layer, r *Run) string {
	switch v := c.field(l, r).(type) {
	case *int:
		if c.optional && *v <= 1 {
			return ""
		}
		return strconv.Itoa(*v)
	case *float64:
		if *v == math.Trunc(*v) && *v < 1e15 {
			return strconv.FormatFloat(*v, 'f', -1, 64)
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	default:
		return *v.(*string)
	}
}

// always are the optional columns that are written even if no line needs them.
var always = []string{"name", "backward_seconds", "update_seconds"}

// used are the columns that some line of the profile needs.
func (p *Profile) used() (all []column) {
	for _, c := range columns {
		says := func(l Layer) bool {
			return slices.ContainsFunc(l.Runs, func(r Run) bool { t := c.written(&l, &r); return t != "" && t != "0" })
		}
		if !c.optional || slices.Contains(always, c.name) || slices.ContainsFunc(p.Layers, says) {
			all = append(all, c)
		}
	}
	return all
}

// WriteCSV writes the profile as CSV. Consecutive equal layers share their lines, and columns that no line needs are left out.
func (p *Profile) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	used := p.used()
	record := []string{"layer"}
	for _, c := range used {
		record = append(record, c.name)
	}
	err := out.Write(record)
	for i := 0; i < len(p.Layers); {
		l := &p.Layers[i]
		end := i + 1
		for end < len(p.Layers) && l.alike(&p.Layers[end]) {
			end++
		}
		number := strconv.Itoa(i)
		if end > i+1 {
			number = fmt.Sprintf("%d-%d", i, end-1)
		}
		for k := range l.Runs {
			record = append(record[:0], number)
			for _, c := range used {
				record = append(record, c.written(l, &l.Runs[k]))
			}
			err = errors.Join(err, out.Write(record))
		}
		i = end
	}
	out.Flush()
	return errors.Join(err, out.Error())
}

// describes reports whether the name and sizes of two layers are the same.
func (l *Layer) describes(o *Layer) bool { return l.Name == o.Name && l.sameSizes(o) }

// sameSizes reports whether all but names and measurements are the same.
func (l *Layer) sameSizes(o *Layer) bool {
	return l.Parameters == o.Parameters && l.Output == o.Output && l.Tied == o.Tied && l.Context == o.Context &&
		l.Experts == o.Experts && l.ExpertParameters == o.ExpertParameters && l.ExpertBytes == o.ExpertBytes
}

func (l *Layer) sizes() string {
	text := fmt.Sprintf("%v parameters (%v tied), %v bytes of output", l.Parameters, l.Tied, l.Output)
	if l.Context > 0 {
		text += fmt.Sprintf(", %v of context", l.Context)
	}
	if l.Experts > 0 || l.ExpertParameters > 0 || l.ExpertBytes > 0 {
		text += fmt.Sprintf(", %d experts of %v parameters and %v bytes", l.Experts, l.ExpertParameters, l.ExpertBytes)
	}
	return text
}

// alike reports whether two layers may share their lines.
func (l *Layer) alike(o *Layer) bool {
	return l.describes(o) && slices.Equal(l.Runs, o.Runs)
}
