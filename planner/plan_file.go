package planner

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/renameio/v2"

	"evenkeel/cluster"
	"evenkeel/planner/layerprofile"
)

//go:embed plan.schema.json
var planSchema []byte

// PlanSchema is the JSON schema of plan files, draft 2020-12.
func PlanSchema() []byte { return bytes.Clone(planSchema) }

// Limits of a plan file.
const (
	maxPlanBytes = 64 << 20
	maxGroups    = 1 << 14 // over all stages, unused devices included
	maxName      = 253     // bytes of a model's or device's name
)

// Encode returns the bytes of the plan's file. The same plan gives the same bytes.
func (p *Plan) Encode() ([]byte, error) {
	q := *p
	if q.Unused == nil {
		q.Unused = []Devices{} // [] rather than null
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(&q); err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	return b.Bytes(), nil
}

// WritePlan writes the plan to the file at path atomically.
func WritePlan(path string, p *Plan) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

// LoadPlan reads the plan file at path; see ReadPlan.
func LoadPlan(path string) (*Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrPlan)
	}
	return ReadPlan(f, path)
}

// ReadPlan reads a plan file and validates it for any number of layers. Errors begin with name and the field, and wrap ErrPlan,
// except those of r.
func ReadPlan(r io.Reader, name string) (*Plan, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPlanBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxPlanBytes {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrPlan, maxPlanBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	p := &Plan{}
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%s: %w", name, unread(data, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w: more text after the object", name, ErrPlan)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// unread reports where and why JSON could not be decoded.
func unread(data []byte, err error) error {
	line := func(offset int64) int { return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n")) }
	switch e, t := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil); {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file ends too early", ErrPlan)
	case errors.As(err, &e):
		return fmt.Errorf("line %d: %w: %w", line(e.Offset), ErrPlan, err)
	case errors.As(err, &t):
		field := strings.ReplaceAll("."+t.Field, ".Devices.", ".")[1:] // a Go name that the file does not have
		return fmt.Errorf("line %d: %w: %s: is a JSON %s; want %s", line(t.Offset), ErrPlan, field, t.Value, t.Type)
	}
	return fmt.Errorf("%w: %s", ErrPlan, strings.TrimPrefix(err.Error(), "json: "))
}

// check checks what Validate does not: sizes, names, and that the prediction matches the stages.
func (p *Plan) check() error {
	groups := len(p.Unused)
	for _, s := range p.Stages {
		groups += len(s.Groups)
	}
	switch {
	case p.GlobalBatch > cluster.MaxGlobalBatch:
		return bad("global_batch", "is %d; must be at most %d", p.GlobalBatch, cluster.MaxGlobalBatch)
	case len(p.Stages) > layerprofile.MaxLayers:
		return bad("stages", "there are %d; must be at most %d", len(p.Stages), layerprofile.MaxLayers)
	case groups > maxGroups:
		return bad("stages", "%d groups and unused devices; must be at most %d", groups, maxGroups)
	case !printable(p.Model):
		return bad("model", "is %.300q; must be printable text of at most %d bytes", p.Model, maxName)
	}
	if err := p.Validate(0); err != nil {
		return err
	}
	if last := p.Stages[len(p.Stages)-1].To; last > layerprofile.MaxLayers {
		return bad("stages", "end with layer %d; a model has at most %d", last-1, layerprofile.MaxLayers)
	}
	for s := range p.Stages {
		for g, group := range p.Stages[s].Groups {
			if !printable(group.Device) {
				return bad(fmt.Sprintf("stages[%d].groups[%d].device", s, g), "is %.300q; must be printable text of at most %d bytes", group.Device, maxName)
			}
		}
	}
	for i, d := range p.Unused {
		if !printable(d.Device) {
			return bad(fmt.Sprintf("unused[%d].device", i), "is %.300q; must be printable text of at most %d bytes", d.Device, maxName)
		}
	}
	return p.Predicted.check(len(p.Stages))
}

// check checks the prediction of a plan with this number of stages.
func (x *Prediction) check(stages int) error {
	if x == nil {
		return nil
	}
	if len(x.Stages) != stages {
		return bad("predicted.stages", "there are %d; the plan has %d", len(x.Stages), stages)
	}
	if !slices.Contains([]string{"", PrecisionMixed, PrecisionBF16, precisionFull}, x.Precision) || !slices.Contains([]string{"", OverlapOn, overlapOff}, x.Overlap) {
		return bad("predicted", "precision is %.40q and overlap %.40q; want mixed, bf16 or fp32, and on or off, or leave them out", x.Precision, x.Overlap)
	}
	if x.Seconds < 0 || x.Simulated < 0 || x.Idle < 0 || x.Idle > 1 {
		return bad("predicted", "%v seconds, %v simulated, %v idle; must be at least 0, idle at most 1", x.Seconds, x.Simulated, x.Idle)
	}
	for i, s := range x.Stages {
		for _, v := range []float64{s.Forward, s.Backward, s.Recompute, s.Gather, s.Convert, s.Send, s.Sync, s.Update} {
			if v < 0 {
				return bad(fmt.Sprintf("predicted.stages[%d]", i), "has a time of %v; must be at least 0", v)
			}
		}
		for j, u := range s.Memory {
			if u.States < 0 || u.Activations < 0 || u.Working < 0 || u.Limit < 0 {
				return bad(fmt.Sprintf("predicted.stages[%d].memory[%d]", i, j), "has less than 0 bytes")
			}
		}
	}
	return nil
}

// printable says whether a name is printable text, which cannot break the lines of tables and exported files.
func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s) && len(s) <= maxName
}
