package layerprofile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
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

// version of the JSON form.
const version = 1

// maxProfileBytes is the size of the largest file.
const maxProfileBytes = 256 << 20

// columns of a layer profile in CSV, in any order.
var columns = []string{"layer", "name", "parameters", "output_bytes", "device", "tensor", "micro_batch", "forward_seconds", "backward_seconds", "update_seconds", "activation_bytes", "fixed_bytes",
	"selective_seconds", "selective_bytes", "tied_parameters"}

// optional columns may be left out.
var optional = []string{"name", "backward_seconds", "update_seconds", "fixed_bytes", "selective_seconds", "selective_bytes", "tied_parameters"}

// Load reads a layer profile from a .csv or .json file; see docs/reference/formats/layer-profile.md.
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

// source is a profile as a file has it.
type source struct {
	name    string
	profile *Profile
	lines   [][]int // of each layer's runs; nil where the file is no CSV
}

// Read reads a layer profile: JSON if the name ends in .json, else CSV, whose model is named after the file. Errors
// wrap ErrProfile and name the line or the field.
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
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	s := &source{name: name}
	if strings.EqualFold(filepath.Ext(name), ".json") {
		s.profile, err = readJSON(text, name)
	} else {
		s.profile, s.lines, err = readCSV(text, name)
	}
	if err != nil {
		return nil, err
	}
	return s, s.once()
}

func readCSV(text []byte, name string) (*Profile, [][]int, error) {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.Comment, rows.TrimLeadingSpace, rows.ReuseRecord = '#', true, true
	p := &Profile{Model: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))}
	var at map[string]int
	var runs int
	var lines [][]int
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w: %w", name, ErrProfile, err)
		}
		line, _ := rows.FieldPos(0)
		bad := func(format string, args ...any) (*Profile, [][]int, error) {
			return nil, nil, fmt.Errorf("%s:%d: %w: %s", name, line, ErrProfile, fmt.Sprintf(format, args...))
		}
		if at == nil {
			at = map[string]int{}
			for i, c := range record {
				if !slices.Contains(columns, c) {
					return bad("column %q is not known; the columns are %s", c, strings.Join(columns, ","))
				}
				if _, twice := at[c]; twice {
					return bad("column %s is given twice", c)
				}
				at[c] = i
			}
			for _, c := range columns {
				if _, ok := at[c]; !ok && !slices.Contains(optional, c) {
					return bad("column %s is missing; the columns are %s", c, strings.Join(columns, ","))
				}
			}
			continue
		}
		row := rowReader{record: record, at: at}
		first, last := row.layers()
		l := Layer{Name: row.text("name"), Parameters: row.number("parameters"), Output: row.number("output_bytes"), Tied: row.number("tied_parameters")}
		run := Run{row.text("device"), row.integer("tensor"), row.integer("micro_batch"), row.number("forward_seconds"),
			row.number("backward_seconds"), row.number("update_seconds"), row.number("activation_bytes"), row.number("fixed_bytes"),
			row.number("selective_seconds"), row.number("selective_bytes")}
		if row.err != nil {
			return bad("%s", row.err)
		}
		if runs += last - first + 1; runs > maxRuns {
			return bad("more than %d measurements", maxRuns)
		}
		for len(p.Layers) <= last {
			p.Layers, lines = append(p.Layers, Layer{Parameters: -1}), append(lines, nil)
		}
		for i := first; i <= last; i++ {
			had := &p.Layers[i]
			if had.Parameters < 0 {
				*had = l
			} else if !had.describes(&l) {
				return bad("layer %d has %v parameters (%v tied), %v bytes of output and the name %q; an earlier line says %v (%v), %v and %q",
					i, l.Parameters, l.Tied, l.Output, l.Name, had.Parameters, had.Tied, had.Output, had.Name)
			}
			had.Runs, lines[i] = append(had.Runs, run), append(lines[i], line)
		}
	}
	for i, l := range p.Layers {
		if l.Parameters < 0 {
			return nil, nil, fmt.Errorf("%s: %w: layer %d is missing; layers are numbered from 0 without gaps", name, ErrProfile, i)
		}
	}
	return p, lines, nil
}

// rowReader reads the fields of a row and keeps the first error.
type rowReader struct {
	record []string
	at     map[string]int
	err    error
}

func (r *rowReader) text(column string) string {
	if i, ok := r.at[column]; ok {
		return r.record[i]
	}
	return ""
}

func (r *rowReader) number(column string) float64 {
	t := r.text(column)
	if t == "" && slices.Contains(optional, column) {
		return 0
	}
	v, err := strconv.ParseFloat(t, 64)
	if (err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0) && r.err == nil {
		r.err = fmt.Errorf("%s is %q; want a number of at least 0", column, t)
	}
	return v
}

func (r *rowReader) integer(column string) int {
	t := r.text(column)
	v, err := strconv.Atoi(t)
	if (err != nil || v < 1) && r.err == nil {
		r.err = fmt.Errorf("%s is %q; want a whole number of at least 1", column, t)
	}
	return v
}

// layers reads a number, or a range such as 1-24 of equal layers.
func (r *rowReader) layers() (first, last int) {
	t := r.text("layer")
	a, b, isRange := strings.Cut(t, "-")
	first, err := strconv.Atoi(a)
	last = first
	if isRange && err == nil {
		last, err = strconv.Atoi(b)
	}
	if (err != nil || first < 0 || last < first || last >= MaxLayers) && r.err == nil {
		r.err = fmt.Errorf("layer is %q; want a number from 0, or a range as 1-24, below %d", t, MaxLayers)
		return 0, 0
	}
	return first, last
}

// fileProfile is a layer profile in JSON.
type fileProfile struct {
	Version int         `json:"version"`
	Model   string      `json:"model"`
	Layers  []fileLayer `json:"layers"`
}

type fileLayer struct {
	Name       string    `json:"name,omitempty"`
	Repeat     int       `json:"repeat,omitempty"` // number of equal layers, default 1
	Parameters float64   `json:"parameters"`
	Output     float64   `json:"output_bytes"`
	Tied       float64   `json:"tied_parameters,omitempty"`
	Runs       []fileRun `json:"runs"`
}

type fileRun struct {
	Device     string  `json:"device"`
	Tensor     int     `json:"tensor"`
	MicroBatch int     `json:"micro_batch"`
	Forward    float64 `json:"forward_seconds"`
	Backward   float64 `json:"backward_seconds,omitempty"`
	Update     float64 `json:"update_seconds,omitempty"`
	Activation float64 `json:"activation_bytes"`
	Fixed      float64 `json:"fixed_bytes,omitempty"`
	Selective  float64 `json:"selective_seconds,omitempty"`
	Freed      float64 `json:"selective_bytes,omitempty"`
}

func readJSON(text []byte, name string) (*Profile, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f fileProfile
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrProfile, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w: more follows after the profile", name, ErrProfile)
	}
	if f.Version != version {
		return nil, fmt.Errorf("%s: %w: version is %d; this program reads %d", name, ErrProfile, f.Version, version)
	}
	p, runs := &Profile{Model: f.Model}, 0
	for i, l := range f.Layers {
		n := max(1, l.Repeat)
		if l.Repeat < 0 || n > MaxLayers-len(p.Layers) {
			return nil, fmt.Errorf("%s: %w: layers[%d].repeat: is %d; layers are at most %d together", name, ErrProfile, i, l.Repeat, MaxLayers)
		}
		if len(l.Runs) > (maxRuns-runs)/n {
			return nil, fmt.Errorf("%s: %w: more than %d measurements", name, ErrProfile, maxRuns)
		}
		runs += n * len(l.Runs)
		for k := range n {
			layer := Layer{Name: l.Name, Parameters: l.Parameters, Output: l.Output, Tied: l.Tied}
			if n > 1 {
				layer.Name = fmt.Sprintf("%s%d", l.Name, k+1)
			}
			for _, r := range l.Runs {
				layer.Runs = append(layer.Runs, Run(r))
			}
			p.Layers = append(p.Layers, layer)
		}
	}
	return p, nil
}

// WriteCSV writes the profile as CSV; equal layers in a row share their lines, and the last columns are there where they are needed.
func (p *Profile) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	some := func(in func(Layer) bool) bool { return slices.ContainsFunc(p.Layers, in) }
	runs := func(in func(Run) bool) bool {
		return some(func(l Layer) bool { return slices.ContainsFunc(l.Runs, in) })
	}
	without := map[string]bool{
		"fixed_bytes":       !runs(func(r Run) bool { return r.Fixed > 0 }),
		"selective_seconds": !runs(func(r Run) bool { return r.Selective > 0 }),
		"selective_bytes":   !runs(func(r Run) bool { return r.Freed > 0 }),
		"tied_parameters":   !some(func(l Layer) bool { return l.Tied > 0 }),
	}
	var kept []string
	for _, c := range columns {
		if !without[c] {
			kept = append(kept, c)
		}
	}
	if err := out.Write(kept); err != nil {
		return err
	}
	n := func(v float64) string {
		if v == math.Trunc(v) && v < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	for i := 0; i < len(p.Layers); {
		l := p.Layers[i]
		end := i + 1
		for end < len(p.Layers) && l.alike(&p.Layers[end]) {
			end++
		}
		number := strconv.Itoa(i)
		if end > i+1 {
			number = fmt.Sprintf("%d-%d", i, end-1)
		}
		for _, r := range l.Runs {
			all := []string{number, l.Name, n(l.Parameters), n(l.Output), r.Device, strconv.Itoa(r.Tensor), strconv.Itoa(r.MicroBatch),
				n(r.Forward), n(r.Backward), n(r.Update), n(r.Activation), n(r.Fixed), n(r.Selective), n(r.Freed), n(l.Tied)}
			var record []string
			for k, c := range columns {
				if !without[c] {
					record = append(record, all[k])
				}
			}
			if err := out.Write(record); err != nil {
				return err
			}
		}
		i = end
	}
	out.Flush()
	return out.Error()
}

// describes says whether two lines of a layer agree.
func (l *Layer) describes(o *Layer) bool {
	return l.Name == o.Name && l.Parameters == o.Parameters && l.Output == o.Output && l.Tied == o.Tied
}

// alike says whether two layers may share their lines.
func (l *Layer) alike(o *Layer) bool {
	return l.describes(o) && slices.Equal(l.Runs, o.Runs)
}
