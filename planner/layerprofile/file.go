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
var columns = []string{"layer", "name", "parameters", "output_bytes", "device", "tensor", "micro_batch", "forward_seconds", "backward_seconds", "update_seconds", "activation_bytes", "fixed_bytes"}

// optional columns may be left out.
var optional = []string{"name", "backward_seconds", "update_seconds", "fixed_bytes"}

// Load reads a layer profile from a .csv or .json file; see docs/reference/formats/layer-profile.md.
func Load(path string) (*Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("layerprofile: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrProfile)
	}
	return Read(f, path)
}

// Read reads a layer profile: JSON if the name ends in .json, else CSV, whose model is named after the file. Errors
// wrap ErrProfile and name the line or the field.
func Read(r io.Reader, name string) (*Profile, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxProfileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("layerprofile: %s: %w", name, err)
	}
	if len(text) > maxProfileBytes {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrProfile, maxProfileBytes)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var p *Profile
	if strings.EqualFold(filepath.Ext(name), ".json") {
		p, err = readJSON(text, name)
	} else {
		p, err = readCSV(text, name)
	}
	if err != nil {
		return nil, err
	}
	if err := p.Finish(name); err != nil {
		return nil, err
	}
	return p, nil
}

func readCSV(text []byte, name string) (*Profile, error) {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.Comment, rows.TrimLeadingSpace, rows.ReuseRecord = '#', true, true
	p := &Profile{Model: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))}
	var at map[string]int
	var runs int
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", name, ErrProfile, err)
		}
		line, _ := rows.FieldPos(0)
		bad := func(format string, args ...any) (*Profile, error) {
			return nil, fmt.Errorf("%s:%d: %w: %s", name, line, ErrProfile, fmt.Sprintf(format, args...))
		}
		if at == nil {
			at = map[string]int{}
			for i, c := range record {
				if !slices.Contains(columns, c) {
					return bad("column %q is not known; the columns are %s", c, strings.Join(columns, ","))
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
		l := Layer{Name: row.text("name"), Parameters: row.number("parameters"), Output: row.number("output_bytes")}
		run := Run{row.text("device"), row.integer("tensor"), row.integer("micro_batch"), row.number("forward_seconds"),
			row.number("backward_seconds"), row.number("update_seconds"), row.number("activation_bytes"), row.number("fixed_bytes")}
		if row.err != nil {
			return bad("%s", row.err)
		}
		if runs += last - first + 1; runs > maxRuns {
			return bad("more than %d measurements", maxRuns)
		}
		for len(p.Layers) <= last {
			p.Layers = append(p.Layers, Layer{Parameters: -1})
		}
		for i := first; i <= last; i++ {
			had := &p.Layers[i]
			if had.Parameters < 0 {
				*had = Layer{Name: l.Name, Parameters: l.Parameters, Output: l.Output}
			} else if had.Parameters != l.Parameters || had.Output != l.Output || had.Name != l.Name {
				return bad("layer %d has %v parameters, %v bytes of output and the name %q; an earlier line says %v, %v and %q",
					i, l.Parameters, l.Output, l.Name, had.Parameters, had.Output, had.Name)
			}
			had.Runs = append(had.Runs, run)
		}
	}
	for i, l := range p.Layers {
		if l.Parameters < 0 {
			return nil, fmt.Errorf("%s: %w: layer %d is missing; layers are numbered from 0 without gaps", name, ErrProfile, i)
		}
	}
	return p, nil
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
		if l.Repeat < 0 || len(p.Layers)+n > MaxLayers {
			return nil, fmt.Errorf("%s: %w: layers[%d].repeat: is %d; layers are at most %d together", name, ErrProfile, i, l.Repeat, MaxLayers)
		}
		if runs += n * len(l.Runs); runs > maxRuns {
			return nil, fmt.Errorf("%s: %w: more than %d measurements", name, ErrProfile, maxRuns)
		}
		for k := range n {
			layer := Layer{Name: l.Name, Parameters: l.Parameters, Output: l.Output}
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

// WriteCSV writes the profile as CSV; equal layers in a row share their lines, and the last column is there where it is needed.
func (p *Profile) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	columns := columns
	if !slices.ContainsFunc(p.Layers, func(l Layer) bool { return slices.ContainsFunc(l.Runs, func(r Run) bool { return r.Fixed > 0 }) }) {
		columns = columns[:len(columns)-1]
	}
	if err := out.Write(columns); err != nil {
		return err
	}
	n := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for i := 0; i < len(p.Layers); {
		l := p.Layers[i]
		end := i + 1
		for end < len(p.Layers) && l.Name == p.Layers[end].Name && l.Parameters == p.Layers[end].Parameters && l.Output == p.Layers[end].Output && slices.Equal(l.Runs, p.Layers[end].Runs) {
			end++
		}
		number := strconv.Itoa(i)
		if end > i+1 {
			number = fmt.Sprintf("%d-%d", i, end-1)
		}
		for _, r := range l.Runs {
			record := []string{number, l.Name, n(l.Parameters), n(l.Output), r.Device, strconv.Itoa(r.Tensor), strconv.Itoa(r.MicroBatch),
				n(r.Forward), n(r.Backward), n(r.Update), n(r.Activation), n(r.Fixed)}
			if err := out.Write(record[:len(columns)]); err != nil {
				return err
			}
		}
		i = end
	}
	out.Flush()
	return out.Error()
}
