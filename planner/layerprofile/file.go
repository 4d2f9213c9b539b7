package layerprofile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// version of the JSON form.
const version = 1

// maxProfileBytes is the size of the largest file.
const maxProfileBytes = 256 << 20

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
			p.Layers, lines = append(p.Layers, Layer{Parameters: -1}), append(lines, nil)
		}
		for i := first; i <= last; i++ {
			had := &p.Layers[i]
			if had.Parameters < 0 {
				*had = l
			} else if !had.describes(&l) {
				return bad("layer %d has %s and the name %q; an earlier line says %s and %q", i, l.sizes(), l.Name, had.sizes(), had.Name)
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

// fileProfile is a layer profile in JSON.
type fileProfile struct {
	Version int         `json:"version"`
	Model   string      `json:"model"`
	Layers  []fileLayer `json:"layers"`
}

type fileLayer struct {
	Name       string    `json:"name,omitempty"`
	Repeat     int       `json:"repeat,omitempty"` // number of equal layers of this name, default 1
	Parameters float64   `json:"parameters"`
	Output     float64   `json:"output_bytes"`
	Tied       float64   `json:"tied_parameters,omitempty"`
	Context    float64   `json:"context_bytes,omitempty"`
	Experts    int       `json:"experts,omitempty"`
	Expert     float64   `json:"expert_parameters,omitempty"`
	Sent       float64   `json:"expert_bytes,omitempty"`
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
	Sequence   float64 `json:"sequence_bytes,omitempty"`
	Machines   int     `json:"machines,omitempty"`
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
		for range n {
			layer := Layer{Name: l.Name, Parameters: l.Parameters, Output: l.Output, Tied: l.Tied, Context: l.Context, Experts: l.Experts, ExpertParameters: l.Expert, ExpertBytes: l.Sent}
			for _, r := range l.Runs {
				layer.Runs = append(layer.Runs, Run(r))
			}
			p.Layers = append(p.Layers, layer)
		}
	}
	return p, nil
}
