package execute

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/evenkeel/evenkeel/planner"
)

// MaxPlanBytes of a file.
const MaxPlanBytes = 16 << 20

// ReadPlan reads a plan's JSON; name stands in errors, which wrap planner.ErrPlan and name line or field.
func ReadPlan(r io.Reader, name string) (*planner.Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxPlanBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxPlanBytes {
		return nil, fmt.Errorf("%w: %s: larger than %d bytes", planner.ErrPlan, name, MaxPlanBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	p := &planner.Plan{}
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%w: %s:%d: %w", planner.ErrPlan, name, 1+bytes.Count(text[:min(d.InputOffset(), int64(len(text)))], []byte("\n")), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s: something follows the plan", planner.ErrPlan, name)
	}
	if err := p.Validate(0); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
