package bucket

import (
	"slices"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Group is the ranks of a job. Speeds as in Config; nil: all 1.
type Group struct {
	Ranks  int
	Speeds []float64
}

// Part is the steps of an epoch that one group of ranks made of what the groups before it had left.
type Part struct {
	Ranks  int       `json:"ranks"`
	Speeds []float64 `json:"speeds,omitempty"` // absent: all 1
	Plan   string    `json:"plan"`             // checksum of the plan of what was left
	Steps  int       `json:"steps"`            // that were made
}

func (p *Part) is(g Group) bool { return p.Ranks == g.Ranks && slices.Equal(p.Speeds, g.Speeds) }

// Resume cuts what is left of the epoch in which the state stands, for a group of ranks, and gives the step to go on with. A group other
// than the state's gets a plan of its own, by the same costs, for the samples that no step has had: nothing is lost or repeated. It cuts all
// earlier parts of the epoch anew, and needs 8 bytes a sample for what is left. Another plan can go on only where no step of the
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
	if err := f.fillSpeeds(); err != nil {
		return nil, 0, err
	}
	g = Group{f.Ranks, f.Speeds}
	if last := len(parts) - 1; !parts[last].is(g) {
		if parts[last].Steps == 0 {
			parts = parts[:last]
		}
		parts = append(parts, Part{Ranks: g.Ranks, Speeds: g.Speeds})
	}
	left := &Schedule{lengths: l, two: p.two}
	for k := range parts {
		if left, err = p.part(left, &parts[k], s); err != nil {
			return nil, 0, err
		}
		if k < len(parts)-1 {
			left = left.after(parts[k].Steps, p.Overlong == Skip)
		}
	}
	if sum, err := p.sum(); err != nil || len(parts) > 1 || parts[0].Plan != sum {
		left.parts = parts
	}
	return left, s.Step, nil
}

// parts are the state's, at least one: where it has none, that of the plan's own group.
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

// part cuts what is left for a part's group. The plan of it is checked against the part's, or written there.
func (p *Plan) part(left *Schedule, part *Part, s State) (*Schedule, error) {
	q, err := p.again(left, Group{part.Ranks, part.Speeds})
	if err != nil {
		return nil, err
	}
	sum, err := q.sum()
	if err != nil {
		return nil, err
	}
	if part.Plan == "" {
		part.Plan = sum
	}
	if part.Plan != sum {
		return nil, input.Errorf("resume state: what was left at step %d is planned otherwise here (%s) than where the state was written (%s): finish the epoch with that version of the program",
			left.before, sum, part.Plan)
	}
	out := &Schedule{Ranks: q.Ranks, Steps: []uint32{0}, limit: q.limit, two: q.two}
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

// again is the plan of what is left for a group: this plan where that is all, for its own group.
func (p *Plan) again(left *Schedule, g Group) (*Plan, error) {
	if left.at == nil && p.Ranks == g.Ranks && slices.Equal(p.Speeds, g.Speeds) {
		return p, nil
	}
	if len(left.lengths) == 0 {
		q := *p
		q.Ranks, q.Speeds, q.Samples, q.Data = g.Ranks, g.Speeds, 0, p.checksum(left.lengths)
		return &q, nil
	}
	f := p.config()
	f.Ranks, f.Speeds = g.Ranks, g.Speeds
	if p.Pairs {
		return makePlan(left.lengths, nil, &paired{of: p.two.of, shapes: p.two.shapes}, f)
	}
	return Make(left.lengths, p.given, f)
}

// after is what a schedule leaves after so many steps, to be cut.
func (s *Schedule) after(steps int, skip bool) *Schedule {
	gone := make([]bool, len(s.lengths))
	for i := range steps {
		for _, b := range s.Step(i) {
			for _, at := range s.own(b) {
				gone[at] = true
			}
		}
	}
	out := &Schedule{before: s.before + steps, Skipped: s.Skipped, at: []uint32{}, two: s.two}
	for i, v := range s.lengths {
		if gone[i] || skip && (int(v) > s.limit || s.two != nil && s.two.none[v]) {
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

// named are samples by their positions in the data set.
func (s *Schedule) named(own []uint32) []uint32 {
	if s.at == nil {
		return own
	}
	out := make([]uint32, len(own))
	for k, i := range own {
		out[k] = s.at[i]
	}
	return out
}
