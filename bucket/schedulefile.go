package bucket

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
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
	Idle    int    `json:"idle"`             // position of the shortest sample: a rank without a batch takes it with weight 0
	Single  bool   `json:"single,omitempty"` // no rank has more than one batch in a step
	Parts   []Part `json:"parts,omitempty"`  // of the epoch, if other ranks than the plan's make some of it; the last is this one
}

// Line is a batch: one line of a schedule file.
type Line struct {
	Step   int     `json:"step"`
	Rank   int     `json:"rank"`
	Weight float64 `json:"weight"` // of the batch's mean loss over samples: its samples x ranks / the samples of a mean step of the plan
	// TokenWeight is the weight of its mean loss over tokens without padding: its tokens x ranks / the
	// tokens of a mean step. 0 in files without it.
	TokenWeight float64  `json:"token_weight"`
	Samples     []uint32 `json:"samples"`
}

// Header describes a schedule of this plan from a step on.
func (p *Plan) Header(s *Schedule, seed, epoch uint64, from int) Header {
	idle := 0
	if len(s.lengths) > 0 {
		shortest := slices.Index(s.lengths, slices.Min(s.lengths)) // it is in a batch
		idle = int(s.named([]uint32{uint32(shortest)})[0])
	}
	return Header{"evenkeel-schedule", 1, p.Samples, s.Ranks, p.Data, p.Checksum, seed, epoch, from, s.before + s.Len(), s.Skipped, s.plan.Limit, idle, s.single(), s.parts}
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
			tokens := 0
			for _, k := range own {
				tokens += min(int(s.lengths[k]), s.plan.Limit)
			}
			if err := f(Line{Step: s.before + i, Rank: int(b.Rank), Weight: float64(b.Count) * float64(s.Ranks) / s.stepSamples,
				TokenWeight: float64(tokens) * float64(s.Ranks) / s.stepTokens, Samples: s.named(own)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteSchedule writes JSON Lines: the header, a line per batch, and a last line with the
// CRC-32 (IEEE) of all bytes before it.
func WriteSchedule(w io.Writer, h Header, s *Schedule) error {
	sum := crc32.NewIEEE()
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20)
	e := json.NewEncoder(b)
	if err := e.Encode(h); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	if err := s.Lines(h.From, func(l Line) error { return e.Encode(l) }); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `{"end":true,"crc32":"%08x"}`+"\n", sum.Sum32())
	return err
}
