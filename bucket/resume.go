package bucket

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"evenkeel/bucket/internal/input"
)

// State says how far a job is in an epoch. It takes less than 1 KB of JSON if the ranks were always those of the plan.
type State struct {
	Version int    `json:"version"` // 1
	Data    string `json:"data"`    // checksum of the lengths
	Plan    string `json:"plan"`    // checksum of the plan
	Ranks   int    `json:"ranks"`
	Seed    uint64 `json:"seed"`
	Epoch   uint64 `json:"epoch"`
	Step    int    `json:"step"`            // number of steps done
	Parts   []Part `json:"parts,omitempty"` // of the epoch so far, if other ranks than the plan's made some of it
}

// maxState bounds what ReadState takes.
const maxState = 16 << 20

// ReadState reads a state file. Errors are of ErrInput.
func ReadState(r io.Reader, name string) (State, error) {
	var s State
	d := json.NewDecoder(io.LimitReader(r, maxState))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, input.Errorf("%s: not a resume state: %v", name, err)
	}
	if s.Version != 1 || s.Step < 0 || s.Ranks < 1 {
		return s, input.Errorf("%s: version %d, step %d, ranks %d: not a resume state of this program", name, s.Version, s.Step, s.Ranks)
	}
	return s, nil
}

// Group is the ranks of a job. Speeds as in Config; nil: all 1.
type Group struct {
	Ranks  int
	Speeds []float64
}

// Part is the steps of an epoch that one group of ranks made from what the groups before it had left.
type Part struct {
	Ranks  int       `json:"ranks"`
	Speeds []float64 `json:"speeds,omitempty"` // absent: all 1
	Plan   string    `json:"plan"`             // checksum of the plan for what was left
	Steps  int       `json:"steps"`            // number of steps made
}

func (p *Part) is(g Group) bool { return p.Ranks == g.Ranks && slices.Equal(p.Speeds, g.Speeds) }

// Resume cuts the rest of a job's epoch for a group of ranks, and returns the step to continue with. If the group is not that of the
// state, it gets a new plan, with the same costs, for the samples that were in no step yet; none is lost or repeated. Resume cuts all
// earlier parts of the epoch again, and needs 8 bytes for each sample that is left. Another plan can only continue if no step of the
// epoch is done. Errors are of ErrInput.
func (p *Plan) Resume(l Lengths, s State, g Group) (*Schedule, int, error) {
	if s.Data != p.Data {
		return nil, 0, input.Errorf("resume state: data %s is not the plan's (%s): it belongs to other lengths", s.Data, p.Data)
	}
	parts, err := p.parts(s)
	if err != nil {
		return nil, 0, err
	}
	f := Config{Ranks: g.Ranks, Speeds: g.Speeds}
	if err := f.completeSpeeds(); err != nil {
		return nil, 0, err
	}
	g = Group{f.Ranks, f.Speeds}
	if last := len(parts) - 1; !parts[last].is(g) {
		if parts[last].Steps == 0 {
			parts = parts[:last]
		}
		parts = append(parts, Part{Ranks: g.Ranks, Speeds: g.Speeds})
	}
	samples, tokens := p.StepSize(l)
	left := &Schedule{plan: p, lengths: l}
	for k := range parts {
		if left, err = p.cutPart(left, &parts[k], s); err != nil {
			return nil, 0, err
		}
		left.stepSamples, left.stepTokens = samples, tokens // so that all samples of the epoch have one weight
		if k < len(parts)-1 {
			left = left.after(parts[k].Steps)
		}
	}
	if sum, err := p.sum(); err != nil || len(parts) > 1 || parts[0].Plan != sum {
		left.parts = parts
	}
	return left, s.Step, nil
}

// parts are the parts of a state, or one part with the plan's own ranks if the state has none.
func (p *Plan) parts(s State) ([]Part, error) {
	sum, err := p.sum()
	if err != nil {
		return nil, err
	}
	if s.Step > 0 && s.Plan != sum {
		return nil, input.Errorf("resume state: step %d of another plan (%s; this one is %s): finish the epoch with that plan, which takes other ranks too, or begin one (step 0)", s.Step, s.Plan, sum)
	}
	if s.Step == 0 || len(s.Parts) == 0 {
		return []Part{{p.Ranks, p.Speeds, sum, s.Step}}, nil
	}
	parts, steps := slices.Clone(s.Parts), 0
	for k := range parts {
		q := &parts[k]
		if q.Steps < 0 || q.Ranks < 1 || q.Ranks > 65536 {
			return nil, input.Errorf("resume state: part %d has %d ranks and %d steps", k, q.Ranks, q.Steps)
		}
		if q.Speeds == nil {
			q.Speeds = slices.Repeat([]float64{1}, q.Ranks)
		}
		steps += q.Steps
	}
	if steps != s.Step {
		return nil, input.Errorf("resume state: step %d; its parts have %d", s.Step, steps)
	}
	return parts, nil
}

// cutPart cuts what is left for the group of a part. It checks the checksum of the plan in the part, or sets it.
func (p *Plan) cutPart(left *Schedule, part *Part, s State) (*Schedule, error) {
	q := p
	switch {
	case left.at == nil && part.is(Group{p.Ranks, p.Speeds}): // the whole epoch, for the plan's own ranks
	case len(left.lengths) == 0:
		nothing := *p
		q, nothing.Ranks, nothing.Speeds, nothing.Samples, nothing.Data = &nothing, part.Ranks, part.Speeds, 0, left.lengths.Checksum()
	default:
		var err error
		if q, err = p.rest(left.lengths, Group{part.Ranks, part.Speeds}); err != nil {
			return nil, err
		}
	}
	sum, err := q.sum()
	if err != nil {
		return nil, err
	}
	part.Plan = cmp.Or(part.Plan, sum)
	if part.Plan != sum {
		return nil, input.Errorf("resume state: what was left at step %d is planned otherwise here (%s) than where the state was written (%s): finish the epoch with that version of the program",
			left.before, sum, part.Plan)
	}
	out := &Schedule{Ranks: q.Ranks, Steps: []uint32{0}, plan: q}
	if len(left.lengths) > 0 {
		out = q.Schedule(left.lengths, s.Seed, s.Epoch)
	}
	if part.Steps > out.Len() {
		return nil, input.Errorf("resume state: step %d of %d", left.before+part.Steps, left.before+out.Len())
	}
	out.Skipped += left.Skipped
	out.before, out.at = left.before, left.at
	return out, nil
}

// after is what a schedule leaves to cut after a number of steps.
func (s *Schedule) after(steps int) *Schedule {
	gone := make([]bool, len(s.lengths))
	for i := range steps {
		for _, b := range s.Step(i) {
			for _, at := range s.own(b) {
				gone[at] = true
			}
		}
	}
	out := &Schedule{plan: s.plan, before: s.before + steps, Skipped: s.Skipped, at: []uint32{}}
	for i, v := range s.lengths {
		if gone[i] || s.plan.skips(v) {
			continue
		}
		out.lengths = append(out.lengths, v)
		if s.at == nil {
			out.at = append(out.at, uint32(i))
		} else {
			out.at = append(out.at, s.at[i])
		}
	}
	return out
}
