package bucket

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"evenkeel/internal/badinput"
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

// ReadState reads a state file.
func ReadState(r io.Reader, name string) (State, error) {
	var s State
	d := json.NewDecoder(io.LimitReader(r, maxState))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, badinput.Errorf("%s: not a resume state: %v", name, err)
	}
	if s.Version != 1 || s.Step < 0 || s.Ranks < 1 {
		return s, badinput.Errorf("%s: version %d, step %d, ranks %d: not a resume state of this program", name, s.Version, s.Step, s.Ranks)
	}
	return s, nil
}

// Part is the steps of an epoch that one group of ranks made from what the groups before it had left.
type Part struct {
	Ranks  int       `json:"ranks"`
	Speeds []float64 `json:"speeds"`
	Plan   string    `json:"plan"`  // checksum of the plan for what was left
	Steps  int       `json:"steps"` // number of steps made
}

// Resume cuts the rest of a job's epoch for ranks of these speeds, and returns the step to continue with. If they are not those of the
// state, they get a new plan, with the same costs, for the samples that were in no step yet; none is lost or repeated. Resume cuts all
// earlier parts of the epoch again, and needs 8 bytes for each sample that is left. Another plan can only continue if no step of the
// epoch is done.
func (p *Plan) Resume(l Lengths, s State, speeds []float64) (*Schedule, int, error) {
	if s.Data != p.Data {
		return nil, 0, badinput.Errorf("resume state: data %s is not the plan's (%s): it belongs to other lengths", s.Data, p.Data)
	}
	parts, err := p.parts(s)
	if err != nil {
		return nil, 0, err
	}
	f := Config{Speeds: speeds}
	if err := f.completeSpeeds(); err != nil {
		return nil, 0, err
	}
	if last := len(parts) - 1; !slices.Equal(parts[last].Speeds, speeds) {
		if parts[last].Steps == 0 {
			parts = parts[:last]
		}
		parts = append(parts, Part{Ranks: f.Ranks, Speeds: speeds})
	}
	samples, tokens := p.StepSize()
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
	if len(parts) > 1 || parts[0].Plan != p.Checksum {
		left.parts = parts
	}
	return left, s.Step, nil
}

// parts are the parts of a state, or one part with the plan's own ranks if the state has none.
func (p *Plan) parts(s State) ([]Part, error) {
	if s.Step > 0 && s.Plan != p.Checksum {
		return nil, badinput.Errorf("resume state: step %d of another plan (%s; this one is %s): finish the epoch with that plan, which takes other ranks too, or begin one (step 0)", s.Step, s.Plan, p.Checksum)
	}
	if s.Step == 0 || len(s.Parts) == 0 {
		return []Part{{p.Ranks, p.Speeds, p.Checksum, s.Step}}, nil
	}
	parts, steps := slices.Clone(s.Parts), 0
	for k := range parts {
		q := &parts[k]
		if q.Steps < 0 || q.Ranks != len(q.Speeds) {
			return nil, badinput.Errorf("resume state: part %d has %d ranks, %d speeds and %d steps", k, q.Ranks, len(q.Speeds), q.Steps)
		}
		steps += q.Steps
	}
	if steps != s.Step {
		return nil, badinput.Errorf("resume state: step %d; its parts have %d", s.Step, steps)
	}
	return parts, nil
}

// cutPart cuts what is left for the group of a part. It checks the checksum of the plan in the part, or sets it.
func (p *Plan) cutPart(left *Schedule, part *Part, s State) (*Schedule, error) {
	out, q := &Schedule{Ranks: part.Ranks, Steps: []uint32{0}, plan: p}, p
	if len(left.lengths) > 0 {
		if left.at != nil || !slices.Equal(part.Speeds, p.Speeds) { // not the whole epoch, for the plan's own ranks
			var err error
			f := p.Config
			f.Ranks, f.Speeds = len(part.Speeds), part.Speeds
			if q, err = Make(left.lengths, p.given, f); err != nil {
				return nil, err
			}
		}
		if part.Plan = cmp.Or(part.Plan, q.Checksum); part.Plan != q.Checksum {
			return nil, badinput.Errorf("resume state: what was left at step %d is planned otherwise here (%s) than where the state was written (%s): finish the epoch with that version of the program",
				left.before, q.Checksum, part.Plan)
		}
		out = q.Schedule(left.lengths, s.Seed, s.Epoch)
	}
	if part.Steps > out.Len() {
		return nil, badinput.Errorf("resume state: step %d of %d", left.before+part.Steps, left.before+out.Len())
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
		if !gone[i] && !s.plan.skips(v) {
			out.lengths, out.at = append(out.lengths, v), append(out.at, uint32(i))
		}
	}
	out.at = s.named(out.at)
	return out
}
