// Package export writes plans in the formats of trainers. See the Examples.
//
// A trainer may not support what a plan asks for: all stages of Megatron-LM have one tensor-parallel degree, for example.
// Then Write returns an error that wraps [ErrUnsupported] and names every obstacle. Warnings say what a trainer supports but its file
// cannot express, and what it does a little differently.
//
// All formats number ranks in the same way: stage by stage, within a stage replica by replica in the order of its groups, within a
// replica device by device. docs/guides/plan-export.md shows how to use each format.
package export

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
	"evenkeel/internal/names"
	"evenkeel/planner"
)

// Errors that the functions of this package wrap.
var (
	errFormat      = badinput.New("planner/export: unknown format")
	errOptions     = badinput.New("planner/export: invalid options")
	ErrUnsupported = badinput.New("planner/export: the trainer cannot run this plan")
)

// Options are what a trainer needs and a plan does not say.
type Options struct {
	// EmbeddingLayers is the number of first layers of the plan that are the embedding, HeadLayers the number of last layers that are the
	// final norm and the output; all others are transformer layers. Only Megatron-LM counts these apart.
	EmbeddingLayers, HeadLayers int
}

// Format is a format that Write knows.
type Format struct {
	Name        string
	Description string
	also        []string // other names for it, for suggestions
	write       func(*rendering) error
}

// Formats lists the formats that Write knows, in the order of the documentation.
func Formats() []Format {
	return []Format{
		{"megatron", "command-line arguments of Megatron-LM, one per line", []string{"megatron-lm", "mcore", "nemo"}, writeMegatron},
		{"deepspeed", "a DeepSpeed configuration, JSON", []string{"ds", "zero"}, writeDeepSpeed},
		{"torch", "a Python module with ranks, layers, strategies, shares, device meshes and the pipeline; takes every plan", []string{"pytorch", "python", "devicemesh"}, writeTorch},
	}
}

func lookup(name string) (Format, error) {
	var known [][]string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		known = append(known, append([]string{f.Name}, f.also...))
	}
	return Format{}, fmt.Errorf("%w %s", errFormat, names.Unknown(name, known))
}

// rendering is a plan and its text in the format of a trainer.
type rendering struct {
	*planner.Plan
	Options
	bytes.Buffer
	trainer  string
	problems []string // why the trainer cannot run it
	warnings []string
}

func (f *rendering) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

func (f *rendering) warn(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// Write writes the plan in the named format, in one piece, and returns warnings. A plan that the trainer cannot run
// wraps ErrUnsupported, an invalid one planner.ErrPlan; then nothing is written.
func Write(w io.Writer, name string, p *planner.Plan, o Options) (warnings []string, err error) {
	format, err := lookup(name)
	if err != nil {
		return nil, err
	}
	// Text that a plan file may not hold must not reach a shell or an interpreter.
	text, err := p.Encode()
	if err == nil {
		p, err = planner.ReadPlan(bytes.NewReader(text), "plan")
	}
	if err != nil {
		return nil, err
	}
	layers := p.Stages[len(p.Stages)-1].To
	if o.EmbeddingLayers < 0 || o.HeadLayers < 0 || o.EmbeddingLayers+o.HeadLayers >= layers {
		return nil, fmt.Errorf("%w: %d embedding and %d head layers of %d; both at least 0, and a layer must be left", errOptions, o.EmbeddingLayers, o.HeadLayers, layers)
	}
	f := &rendering{Plan: p, Options: o, trainer: format.Name}
	if err := format.write(f); err != nil {
		return nil, err
	}
	if len(f.problems) > 0 {
		return nil, fmt.Errorf("%s: %w: %s", f.trainer, ErrUnsupported, strings.Join(f.problems, "; "))
	}
	_, err = w.Write(f.Bytes())
	return f.warnings, err
}

// assumes reports what the plan's prediction assumes of training; a plan without one assumes nothing.
func (f *rendering) assumes() (precision string, overlap bool) {
	if f.Predicted == nil {
		return "", false
	}
	return f.Predicted.Precision, f.Predicted.Overlap == planner.OverlapOn
}

// rectangle is the shape of a plan with equal stages, the only kind that most trainers run.
type rectangle struct{ stages, data, tensor, share int }

// runs adds a problem if the trainer does not run the plan's schedule.
func (f *rendering) runs(schedules ...string) {
	if f.Schedule != "" && f.Schedule != planner.Schedule1F1B && !slices.Contains(schedules, f.Schedule) {
		all := append([]string{planner.Schedule1F1B}, schedules...)
		text, last := strings.Join(all[:len(all)-1], ", "), all[len(all)-1]
		if text != "" {
			text += " and "
		}
		f.problem("schedule: is %s; it runs %s", f.Schedule, text+last)
	}
}

// rectangle adds a problem for every stage that differs from the first.
func (f *rendering) rectangle() rectangle {
	r := rectangle{stages: f.Pipeline(), tensor: f.tensors(0)[0]}
	for i, s := range f.Stages {
		for _, t := range f.tensors(i) {
			if t != r.tensor {
				f.problem("stages[%d]: tensor degrees %v; must all be %d as in the first stage, for there is one for all layers and devices", i, f.tensors(i), r.tensor)
				break
			}
		}
		var shares []int
		for _, g := range s.Groups {
			shares = append(shares, g.MicroBatches...)
		}
		if t := s.Strategies[0].Tensor; t != 0 && t != s.Groups[0].Tensor { // then shares are as even as possible
			n := s.Groups[0].Count / t / max(1, f.Context)
			shares = slices.Repeat([]int{f.MicroBatch / n}, n)
			shares[0] = f.MicroBatch - shares[0]*(len(shares)-1)
		}
		if i == 0 {
			r.data, r.share = len(shares), shares[0]
		}
		if slices.ContainsFunc(shares, func(b int) bool { return b != shares[0] }) {
			f.problem("stages[%d]: its replicas take unequal shares of a micro-batch, but there is one micro-batch size for all", i)
		} else if len(shares) != r.data {
			f.problem("stages[%d]: %d replicas; must be %d as in the first stage, for there is one data-parallel size", i, len(shares), r.data)
		}
	}
	return r
}

// tensors are the different tensor degrees of a stage, in their order in the plan.
func (f *rendering) tensors(stage int) []int {
	var all []int
	for _, y := range f.Stages[stage].Strategies {
		for _, g := range f.Stages[stage].Groups {
			t := g.Tensor
			if y.Tensor != 0 {
				t = y.Tensor
			}
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// sharding is the sharding of all layers. It adds a problem if layers differ.
func (f *rendering) sharding() planner.Sharding {
	first := f.Stages[0].Strategies[0].Sharding
	for i, s := range f.Stages {
		for _, y := range s.Strategies {
			if y.Sharding != first {
				f.problem("stages[%d]: layers %d-%d have sharding %s, those before %s; there is one for all layers", i, y.From, y.To-1, y.Sharding, first)
				return first
			}
		}
	}
	return first
}

// ranks has a line for each stage that says which devices have which ranks.
func (f *rendering) ranks() []string {
	var lines []string
	rank := 0
	for i, s := range f.Stages[:f.Pipeline()] {
		var groups []string
		for _, g := range s.Groups {
			groups = append(groups, fmt.Sprintf("ranks %d-%d are %s %d-%d", rank, rank+g.Count-1, g.Device, g.First, g.First+g.Count-1))
			rank += g.Count
		}
		layers := fmt.Sprintf("%d-%d", s.From, s.To-1)
		for k := i + f.Pipeline(); k < len(f.Stages); k += f.Pipeline() { // interleaved: of the other chunks
			layers += fmt.Sprintf(", %d-%d", f.Stages[k].From, f.Stages[k].To-1)
		}
		lines = append(lines, fmt.Sprintf("stage %d: layers %s; %s", i, layers, strings.Join(groups, ", ")))
	}
	return lines
}

func (f *rendering) strategy(layer int) planner.Strategy {
	for _, s := range f.Stages {
		for _, y := range s.Strategies {
			if layer >= y.From && layer < y.To {
				return y
			}
		}
	}
	return planner.Strategy{}
}
