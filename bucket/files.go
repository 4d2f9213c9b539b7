package bucket

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/zeebo/xxh3"
)

// MaxPlanBytes bounds a plan file, MaxLineBytes a line of a schedule file.
const (
	MaxPlanBytes = 1 << 28
	MaxLineBytes = 1 << 26
)

// ReadPlan reads a plan file and makes its plan ready for the lengths. Lengths other
// than those planned for are an error of ErrInput.
func ReadPlan(r io.Reader, name string, l Lengths) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxPlanBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > MaxPlanBytes {
		return nil, badf("%s: larger than %d bytes", name, MaxPlanBytes)
	}
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, badf("%s: no plan file: %v", name, err)
	}
	if p.Version != PlanVersion {
		return nil, badf("%s: version %d; want %d", name, p.Version, PlanVersion)
	}
	if got := l.Checksum(); p.Data != got {
		return nil, badf("%s: data is %q, these lengths are %q: the plan was made for others", name, p.Data, got)
	}
	for i, t := range p.Table {
		if t.Length < 1 || t.Length > MaxLength || t.Batch < 1 || t.Batch > MaxLength || !(t.Seconds > 0) && !t.OutOfMemory || t.PeakBytes < 0 {
			return nil, badf("%s: table[%d] is no trial", name, i)
		}
		if i > 0 && (t.Length < p.Table[i-1].Length || t.Length == p.Table[i-1].Length && t.Batch <= p.Table[i-1].Batch) {
			return nil, badf("%s: table[%d] is not above the one before", name, i)
		}
	}
	c, err := NewCost(p.Table, p.Memory)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := Config{Ranks: p.Ranks, Speeds: p.Speeds, Mode: p.Mode, Rule: p.Rule, Overlong: p.Overlong}
	for _, b := range p.Buckets {
		f.Boundaries = append(f.Boundaries, b.Upper)
	}
	if len(f.Boundaries) == 1 {
		f.Boundaries = nil
	}
	q, err := Make(l, c, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return q, nil
}

// Header is the first line of a schedule file.
type Header struct {
	Version   int    `json:"evenkeel_schedule"`
	Data      string `json:"data"` // checksum of the lengths; "" in another's schedule
	Samples   int    `json:"samples"`
	Ranks     int    `json:"ranks"`
	Seed      uint64 `json:"seed"`
	Epoch     uint64 `json:"epoch"`
	Steps     int    `json:"steps"`      // of the whole epoch
	FirstStep int    `json:"first_step"` // above 0 after a resume
	Limit     int    `json:"limit"`      // samples longer are truncated to it; 0: none are
}

// State is what resumes an epoch.
type State struct {
	Version int    `json:"version"`
	Data    string `json:"data"`
	Ranks   int    `json:"ranks"`
	Seed    uint64 `json:"seed"`
	Epoch   uint64 `json:"epoch"`
	Step    int    `json:"step"` // the next
}

// ReadState reads a state and checks it against the plan. Another number of ranks is
// allowed at step 0 alone: within an epoch the steps of another world are others.
func ReadState(text []byte, name string, p *Plan) (State, error) {
	var s State
	if len(text) > 1024 {
		return s, badf("%s: larger than 1024 bytes", name)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, badf("%s: no state: %v", name, err)
	}
	switch {
	case s.Version != 1:
		return s, badf("%s: version %d; want 1", name, s.Version)
	case s.Data != p.Data:
		return s, badf("%s: data is %q, the plan's is %q: the state is of other data", name, s.Data, p.Data)
	case s.Ranks != p.Ranks && s.Step != 0:
		return s, badf("%s: step %d with %d ranks cannot go on with %d; change the number of ranks between epochs", name, s.Step, s.Ranks, p.Ranks)
	case s.Step < 0:
		return s, badf("%s: step %d is below 0", name, s.Step)
	}
	return s, nil
}

// WriteSchedule writes JSON Lines: the header, a line per batch, an end with a checksum.
// Tell, if given, gets the steps done.
func (p *Plan) WriteSchedule(w io.Writer, s *Schedule, from State, tell func(done, total int) error) error {
	limit := 0
	if p.Overlong == Truncate {
		limit = p.limit
	}
	if from.Step > s.Len() {
		return badf("step %d: the epoch has %d", from.Step, s.Len())
	}
	sum := xxh3.New()
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<18)
	head, err := json.Marshal(Header{1, p.Data, p.Samples, p.Ranks, from.Seed, from.Epoch, s.Len(), from.Step, limit})
	if err != nil {
		return err
	}
	line := append(head, '\n')
	for i := from.Step; i <= s.Len(); i++ {
		if _, err := b.Write(line); err != nil {
			return err
		}
		if i == s.Len() {
			break
		}
		line = line[:0]
		total := 0
		for _, x := range s.Step(i) {
			total += int(x.Count)
		}
		for _, x := range s.Step(i) {
			line = append(line, `{"step":`...)
			line = strconv.AppendInt(line, int64(i), 10)
			line = append(line, `,"rank":`...)
			line = strconv.AppendUint(line, uint64(x.Rank), 10)
			line = append(line, `,"weight":`...)
			line = strconv.AppendFloat(line, float64(x.Count)*float64(s.Ranks)/float64(total), 'g', -1, 64)
			line = append(line, `,"samples":[`...)
			for k, v := range s.Samples(x) {
				if k > 0 {
					line = append(line, ',')
				}
				line = strconv.AppendUint(line, uint64(v), 10)
			}
			line = append(line, "]}\n"...)
		}
		if tell != nil && i%64 == 0 {
			if err := tell(i, s.Len()); err != nil {
				return err
			}
		}
	}
	if err := b.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `{"end":true,"checksum":"%s"}`+"\n", hex.EncodeToString(sum.Sum(nil)))
	return err
}

// ReadSchedule reads a schedule file, ours or an exported one (which may leave out the
// end and the header's data). It returns the header and the steps as they are read.
func ReadSchedule(r io.Reader, name string) (Header, Steps, error) {
	b := bufio.NewScanner(r)
	b.Buffer(make([]byte, 1<<16), MaxLineBytes)
	var h Header
	if !b.Scan() {
		return h, nil, badf("%s: empty", name)
	}
	if err := json.Unmarshal(b.Bytes(), &h); err != nil || h.Version != 1 {
		return h, nil, badf(`%s:1: no schedule: want {"evenkeel_schedule":1,"ranks":...}`, name)
	}
	if h.Ranks < 1 || h.Ranks > 65536 || h.Limit < 0 {
		return h, nil, badf("%s:1: ranks %d: must be 1 to 65536", name, h.Ranks)
	}
	sum := xxh3.New()
	_, _ = sum.Write(append(bytes.Clone(b.Bytes()), '\n'))
	type row struct {
		Step     *int     `json:"step"`
		Rank     int      `json:"rank"`
		Samples  []uint32 `json:"samples"`
		Weight   float64  `json:"weight"`
		End      bool     `json:"end"`
		Checksum string   `json:"checksum"`
	}
	line, current, ended := 1, -1, false
	var held *RankBatch
	next := func() (*row, error) {
		if !b.Scan() {
			if err := b.Err(); errors.Is(err, bufio.ErrTooLong) {
				return nil, badf("%s:%d: line longer than %d bytes", name, line+1, MaxLineBytes)
			} else if err != nil {
				return nil, err
			}
			if h.Data != "" && !ended {
				return nil, badf("%s: cut off after line %d: no end", name, line)
			}
			return nil, nil
		}
		line++
		var v row
		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			return nil, badf("%s:%d: %v", name, line, err)
		}
		switch {
		case ended:
			return nil, badf("%s:%d: more after the end", name, line)
		case v.End:
			if ended = true; v.Checksum != hex.EncodeToString(sum.Sum(nil)) {
				return nil, badf("%s:%d: checksum does not match", name, line)
			}
			return &v, nil
		case v.Step == nil || *v.Step < max(current, 0):
			return nil, badf("%s:%d: step missing or below the one before", name, line)
		case v.Rank < 0 || v.Rank >= h.Ranks:
			return nil, badf("%s:%d: rank %d of %d", name, line, v.Rank, h.Ranks)
		}
		_, _ = sum.Write(append(bytes.Clone(b.Bytes()), '\n'))
		return &v, nil
	}
	return h, func() ([]RankBatch, error) {
		var out []RankBatch
		if held != nil {
			out = append(out, *held)
			held = nil
		}
		for {
			v, err := next()
			if err != nil {
				return nil, err
			}
			if v == nil {
				return out, nil
			}
			if v.End {
				continue
			}
			x := RankBatch{v.Rank, v.Samples}
			if *v.Step != current && len(out) > 0 {
				current, held = *v.Step, &x
				return out, nil
			}
			current = *v.Step
			out = append(out, x)
		}
	}, nil
}
