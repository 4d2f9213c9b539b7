package calibration

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
	"evenkeel/planner/layerprofile"
)

// errMeasured is wrapped by errors about measured plans. It is bad input.
var errMeasured = badinput.New("planner/calibration: invalid measurements")

// Measured is a plan that was run.
type Measured struct {
	Name    string // the line, and the plan file that it names
	Plan    *planner.Plan
	Job     *planner.Job
	Seconds float64 // of an iteration
	Peak    float64 // bytes, the largest peak of a device; 0: not measured
}

const (
	maxBytes = 1 << 20
	maxRows  = 1000
)

// columns of the file of measured plans, in any order.
var columns = []string{"plan", "cluster", "seconds", "peak_bytes"}

// Load reads a file of measured plans; see docs/reference/formats/measured-plans.md. Paths in it are relative to its folder; t is the
// cluster of plans that name none, and may be nil. The job of each plan has the options o. Errors name the line.
func Load(path string, p *layerprofile.Profile, t *cluster.Topology, o planner.Options) ([]Measured, error) {
	text, err := readFile(path, errMeasured)
	if err != nil {
		return nil, err
	}
	rows := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	rows.Comment, rows.TrimLeadingSpace = '#', true
	r := reader{folder: filepath.Dir(path), profile: p, options: o, clusters: map[string]*cluster.Topology{"": t}}
	var all []Measured
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", path, errMeasured, err)
		}
		line, _ := rows.FieldPos(0)
		if r.at == nil {
			err = r.header(record)
		} else if len(all) == maxRows {
			err = fmt.Errorf("%w: more than %d plans", errMeasured, maxRows)
		} else {
			var m Measured
			m, err = r.row(record)
			m.Name = fmt.Sprintf("line %d, %s", line, record[r.at["plan"]])
			all = append(all, m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w: no plans in it; want the columns %s and a line for each plan", path, errMeasured, strings.Join(columns, ","))
	}
	return all, nil
}

// readFile reads a file of at most maxBytes; the error about a larger one wraps large.
func readFile(path string, large error) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("planner/calibration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("planner/calibration: %s: %w", path, err)
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", path, large, maxBytes)
	}
	return text, nil
}

// reader reads the lines of a file.
type reader struct {
	folder   string
	profile  *layerprofile.Profile
	options  planner.Options
	clusters map[string]*cluster.Topology // by their name in the file; "": where none is named
	at       map[string]int               // column numbers
}

func (r *reader) header(record []string) error {
	r.at = map[string]int{}
	for i, c := range record {
		if _, twice := r.at[c]; twice || !slices.Contains(columns, c) {
			return fmt.Errorf("%w: column %q is not known or given twice; the columns are %s", errMeasured, c, strings.Join(columns, ","))
		}
		r.at[c] = i
	}
	for _, c := range []string{"plan", "seconds"} {
		if _, ok := r.at[c]; !ok {
			return fmt.Errorf("%w: column %s is missing; the columns are %s", errMeasured, c, strings.Join(columns, ","))
		}
	}
	return nil
}

func (r *reader) row(record []string) (m Measured, err error) {
	text := func(column string) string {
		if i, ok := r.at[column]; ok {
			return record[i]
		}
		return ""
	}
	for _, x := range []struct {
		column string
		value  *float64
	}{{"seconds", &m.Seconds}, {"peak_bytes", &m.Peak}} {
		t := text(x.column)
		if t == "" && x.value == &m.Peak {
			continue
		}
		if *x.value, err = strconv.ParseFloat(t, 64); err != nil || !(*x.value > 0) || *x.value > 1e18 {
			return m, fmt.Errorf("%w: %s is %.40q; want a number above 0", errMeasured, x.column, t)
		}
	}
	if m.Plan, err = planner.LoadPlan(r.path(text("plan"))); err != nil {
		return m, err
	}
	name := text("cluster")
	t, known := r.clusters[name]
	if !known {
		if t, err = clusterfile.LoadTopology(r.path(name), profile.Embedded()); err != nil {
			return m, err
		}
		r.clusters[name] = t
	}
	if t == nil {
		return m, fmt.Errorf("%w: cluster is empty; name the cluster file of this plan", errMeasured)
	}
	o := r.options
	o.GlobalBatches = []int{m.Plan.GlobalBatch}
	m.Job, err = planner.NewJob(r.profile, t, o)
	return m, err
}

func (r *reader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.folder, name)
}
