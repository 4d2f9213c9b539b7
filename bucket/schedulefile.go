package bucket

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/bucket/internal/input"
)

// Header is the first line of a schedule file.
type Header struct {
	Format  string `json:"format"` // "evenkeel-schedule"
	Version int    `json:"version"`
	Samples int    `json:"samples"` // in the data set
	Ranks   int    `json:"ranks"`
	Data    string `json:"data"` // checksum of the lengths
	Plan    string `json:"plan"` // checksum of the plan
	Seed    uint64 `json:"seed"`
	Epoch   uint64 `json:"epoch"`
	From    int    `json:"from"`             // first step in the file
	Steps   int    `json:"steps"`            // of the whole epoch
	Skipped int    `json:"skipped"`          // samples left out as too long, on request
	Limit   int    `json:"limit"`            // longest length that is batched
	Pairs   bool   `json:"pairs,omitempty"`  // samples have two lengths, padded apart
	Idle    int    `json:"idle"`             // position of the shortest sample: a rank without a batch takes it with weight 0
	Single  bool   `json:"single,omitempty"` // no rank has more than one batch in a step
	Parts   []Part `json:"parts,omitempty"`  // of the epoch, if other ranks than the plan's make some of it; the last is this one
}

// Line is a batch: one line of a schedule file.
type Line struct {
	Step   int     `json:"step"`
	Rank   int     `json:"rank"`
	Weight float64 `json:"weight"` // of the batch's mean loss over samples: its samples x ranks / the samples of a mean step of the plan
	// TokenWeight is the weight of its mean loss over tokens without padding (of two lengths, over targets): its tokens x ranks / the
	// tokens of a mean step. 0 in files without it.
	TokenWeight float64  `json:"token_weight"`
	Samples     []uint32 `json:"samples"`
}

const scheduleFormat = "evenkeel-schedule"

// maxLine bounds a line of a schedule file in bytes.
const maxLine = 256 << 20

// Header describes the schedule from a step on.
func (p *Plan) Header(s *Schedule, seed, epoch uint64, from int) (Header, error) {
	sum, err := p.sum()
	idle := 0
	if len(s.of.Lengths) > 0 {
		idle = int(s.named([]uint32{uint32(s.shortest())})[0])
	}
	limit := s.of.Limit
	if p.Pairs {
		limit = p.Limit
	}
	return Header{scheduleFormat, 1, p.Samples, s.Ranks, p.Data, sum, seed, epoch, from, s.before + s.Len(), s.Skipped, limit, p.Pairs, idle, s.single(), s.parts}, err
}

func (s *Schedule) single() bool {
	for i := range s.Len() {
		for k, b := range s.Step(i)[1:] { // sorted by rank
			if s.Step(i)[k].Rank == b.Rank {
				return false
			}
		}
	}
	return true
}

// State is the state of a job after a number of steps of the epoch.
func (h *Header) State(step int) State {
	s := State{Version: 1, Data: h.Data, Plan: h.Plan, Ranks: h.Ranks, Seed: h.Seed, Epoch: h.Epoch, Step: step, Parts: slices.Clone(h.Parts)}
	if last := len(s.Parts) - 1; last >= 0 {
		s.Parts[last].Steps = step
		for _, q := range s.Parts[:last] {
			s.Parts[last].Steps -= q.Steps
		}
	}
	return s
}

// Lines calls f with every batch from a step on, in order of step and rank, and stops at an error. f must not change or keep samples.
func (s *Schedule) Lines(from int, f func(Line) error) error {
	for i := from - s.before; i < s.Len(); i++ {
		for _, b := range s.Step(i) {
			own := s.own(b)
			if err := f(Line{Step: s.before + i, Rank: int(b.Rank), Weight: float64(b.Count) * float64(s.Ranks) / s.of.StepSamples,
				TokenWeight: float64(s.of.Tokens(own)) * float64(s.Ranks) / s.of.StepTokens, Samples: s.named(own)}); err != nil {
				return err
			}
		}
		if s.Progress != nil {
			s.Progress(i+1, s.Len())
		}
	}
	return nil
}

// WriteSchedule writes JSON Lines: the header, a line per batch, and a last line with the
// CRC-32 (IEEE) of all bytes before it.
func WriteSchedule(w io.Writer, h Header, s *Schedule) error {
	sum := crc32.NewIEEE()
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20)
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	buf := append(head, '\n')
	if _, err := b.Write(buf); err != nil {
		return err
	}
	err = s.Lines(h.From, func(l Line) error {
		buf = append(buf[:0], `{"step":`...)
		buf = strconv.AppendInt(buf, int64(l.Step), 10)
		buf = append(buf, `,"rank":`...)
		buf = strconv.AppendInt(buf, int64(l.Rank), 10)
		buf = append(buf, `,"weight":`...)
		buf = strconv.AppendFloat(buf, l.Weight, 'g', -1, 64)
		buf = append(buf, `,"token_weight":`...)
		buf = strconv.AppendFloat(buf, l.TokenWeight, 'g', -1, 64)
		buf = append(buf, `,"samples":[`...)
		for i, v := range l.Samples {
			if i > 0 {
				buf = append(buf, ',')
			}
			buf = strconv.AppendUint(buf, uint64(v), 10)
		}
		buf = append(buf, "]}\n"...)
		_, err := b.Write(buf)
		return err
	})
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		_, err = fmt.Fprintf(w, `{"end":true,"crc32":"%08x"}`+"\n", sum.Sum32())
	}
	return err
}

// ScheduleReader reads a schedule file of this program, or of another system in the same format. Next returns its lines.
type ScheduleReader struct {
	Header Header

	b      *bufio.Reader
	name   string
	line   int
	sum    hash.Hash32
	before Line
	end    error // of the last Next
}

// NewScheduleReader reads the header. Errors are of ErrInput, with the line.
func NewScheduleReader(r io.Reader, name string) (*ScheduleReader, error) {
	s := &ScheduleReader{b: bufio.NewReaderSize(r, 1<<20), name: name, sum: crc32.NewIEEE()}
	text, err := s.read()
	if err != nil {
		return nil, err
	}
	_, _ = s.sum.Write(text) // never fails
	if err := json.Unmarshal(text, &s.Header); err != nil {
		return nil, input.Errorf("%s:1: not a schedule: the first line is not a header: %v", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := s.Header.check(name + ":1"); err != nil {
		return nil, err
	}
	s.before.Step = s.Header.From
	return s, nil
}

func (h Header) check(where string) error {
	if h.Format != scheduleFormat || h.Version != 1 {
		return input.Errorf("%s: not a schedule: format %q, version %d; want %q, 1", where, h.Format, h.Version, scheduleFormat)
	}
	if h.Ranks < 1 || h.Ranks > 65536 || h.Samples < 1 || h.Samples > math.MaxUint32 || h.From < 0 || h.Steps < h.From {
		return input.Errorf("%s: ranks %d, samples %d, from %d or steps %d is out of range", where, h.Ranks, h.Samples, h.From, h.Steps)
	}
	return nil
}

func (s *ScheduleReader) read() ([]byte, error) {
	s.line++
	var text []byte
	for {
		part, err := s.b.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, input.Errorf("%s:%d: line longer than %d bytes", s.name, s.line, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, input.Errorf("%s:%d: the file ends without its last line: it is truncated", s.name, s.line)
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", s.name, s.line, err)
		default:
			return text, nil
		}
	}
}

// Next returns the next batch, or io.EOF after the last. Steps never fall; ranks and samples are within the numbers of the header.
// After an error it returns the same error again.
func (s *ScheduleReader) Next() (l Line, err error) {
	if s.end == nil {
		l, s.end = s.next()
	}
	return l, s.end
}

func (s *ScheduleReader) next() (Line, error) {
	var l Line
	text, err := s.read()
	if err != nil {
		return l, err
	}
	if bytes.HasPrefix(text, []byte(`{"end"`)) {
		var end struct {
			End   bool   `json:"end"`
			CRC32 string `json:"crc32"`
		}
		if err := json.Unmarshal(text, &end); err != nil || !end.End {
			return l, input.Errorf("%s:%d: not a last line", s.name, s.line)
		}
		if got := fmt.Sprintf("%08x", s.sum.Sum32()); end.CRC32 != "" && end.CRC32 != got {
			return l, input.Errorf("%s:%d: checksum %s of the lines before is %s: the file was changed or damaged", s.name, s.line, end.CRC32, got)
		}
		return l, io.EOF
	}
	_, _ = s.sum.Write(text)
	if err := json.Unmarshal(text, &l); err != nil {
		return l, input.Errorf("%s:%d: %v", s.name, s.line, err)
	}
	return l, s.check(l)
}

func (s *ScheduleReader) check(l Line) error {
	if l.Step < s.before.Step || l.Step >= s.Header.Steps {
		return input.Errorf("%s:%d: step %d: must be from %d to %d", s.name, s.line, l.Step, s.before.Step, s.Header.Steps-1)
	}
	if l.Rank < 0 || l.Rank >= s.Header.Ranks {
		return input.Errorf("%s:%d: rank %d of %d", s.name, s.line, l.Rank, s.Header.Ranks)
	}
	for _, v := range l.Samples {
		if int(v) >= s.Header.Samples {
			return input.Errorf("%s:%d: sample %d of %d", s.name, s.line, v, s.Header.Samples)
		}
	}
	s.before = l
	return nil
}

// All gives the file's steps to Judge.
func (s *ScheduleReader) All() Steps {
	var ahead *Line
	return func() (out []RankBatch, err error) {
		for step := -1; ; {
			if ahead == nil {
				l, err := s.Next()
				if errors.Is(err, io.EOF) {
					return out, nil
				}
				if err != nil {
					return nil, err
				}
				ahead = &l
			}
			if step >= 0 && ahead.Step != step {
				return out, nil
			}
			step = ahead.Step
			out = append(out, RankBatch{ahead.Rank, ahead.Samples})
			ahead = nil
		}
	}
}
