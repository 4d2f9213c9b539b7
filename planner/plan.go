package planner

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
	"evenkeel/planner/costmodel"
)

// ErrPlan is wrapped by errors about a plan that does not fit its model or its cluster. It is bad input.
var ErrPlan = badinput.New("planner: invalid plan")

// Version of the plan file.
const Version = 1

// Plan says which devices train which layers, and how. Iterations run GlobalBatch/MicroBatch micro-batches through the
// stages, first to last, by the 1F1B schedule or another.
type Plan struct {
	Version     int         `json:"version"`
	Model       string      `json:"model"`
	GlobalBatch int         `json:"global_batch"`        // samples of an iteration, a multiple of MicroBatch
	MicroBatch  int         `json:"micro_batch"`         // samples that enter the pipeline together, over all replicas
	Context     int         `json:"context,omitempty"`   // context-parallel degree: devices that divide a replica's sequences; 0 means 1
	Experts     int         `json:"experts,omitempty"`   // expert-parallel degree: replicas that divide the experts of layers; 0 means 1
	Schedule    string      `json:"schedule,omitempty"`  // 1f1b (also if empty), interleaved, zb-h1 or h-1f1b
	Chunks      int         `json:"chunks,omitempty"`    // interleaved: stages of each device; stage k uses those of stage k mod (stages / chunks)
	Warmup      []int       `json:"warmup,omitempty"`    // h-1f1b: forward passes that each stage begins with
	Transfers   string      `json:"transfers,omitempty"` // interleaved and zb-h1: overlap; empty: no computing while sending or receiving
	Stages      []Stage     `json:"stages"`
	Unused      []Devices   `json:"unused"`              // devices without work
	Predicted   *Prediction `json:"predicted,omitempty"` // what the cost model expects of it
}

// MicroBatches is the number of micro-batches of an iteration.
func (p *Plan) MicroBatches() int { return p.GlobalBatch / p.MicroBatch }

// Stage is a run of consecutive layers with its devices.
type Stage struct {
	From       int        `json:"from"`       // its first layer
	To         int        `json:"to"`         // the layer after its last
	Groups     []Group    `json:"groups"`     // at least one, each of another class
	Strategies []Strategy `json:"strategies"` // of its layers, in their order
}

// Devices are consecutive devices of a class, numbered from 0 over all its machines.
type Devices struct {
	Device string `json:"device"`
	First  int    `json:"first"`
	Count  int    `json:"count"`
}

// Group is the devices of a class that work on a stage. Each replica has Tensor devices, times the plan's Context.
type Group struct {
	Devices
	Tensor       int   `json:"tensor"`        // tensor-parallel degree; Tensor times Context divides Count
	MicroBatches []int `json:"micro_batches"` // samples that each replica takes of a micro-batch; they sum to it over the groups
}

// Sharding says what the data-parallel replicas of a layer divide among themselves. Each replica holds all the rest.
type Sharding = costmodel.Sharding

// Kinds of sharding. Optimizer is ZeRO stage 1, Gradients stage 2, Full stage 3 (fully sharded data parallel).
const (
	Replicated = costmodel.Replicated
	Optimizer  = costmodel.Optimizer
	Gradients  = costmodel.Gradients
	Full       = costmodel.Full
)

// Strategy is how a run of layers of a stage is trained.
type Strategy struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Tensor is the tensor-parallel degree of these layers; 0: that of each group. A stage of one group may choose another
	// degree for some layers; activations between them are then redistributed.
	Tensor     int      `json:"tensor,omitempty"`
	Sharding   Sharding `json:"sharding"`
	Checkpoint bool     `json:"checkpoint"`          // keep only a layer's input, and recompute its activations for the backward pass
	Selective  bool     `json:"selective,omitempty"` // recompute only the core of attention; not with Checkpoint
}

// of is the strategy of a layer in the cost model.
func (y Strategy) of() costmodel.Strategy {
	return costmodel.Strategy{Tensor: y.Tensor, Sharding: y.Sharding, Checkpoint: y.Checkpoint, Selective: y.Selective}
}

// Prediction is what the cost model expects of a plan, in seconds and bytes.
type Prediction struct {
	// Seconds of an iteration by formula: sum of steps + (micro-batches - 1) x largest step + largest per-iteration cost.
	Seconds   float64     `json:"seconds"`
	Simulated float64     `json:"simulated,omitempty"` // seconds of an iteration by simulation of its schedule; 0: not simulated
	Idle      float64     `json:"idle"`                // mean share of the iteration in which the used devices wait
	Stages    []StageCost `json:"stages"`
	// Precision and Overlap are assumptions of the prediction; an export switches them on. "": not known.
	Precision string `json:"precision,omitempty"` // mixed, bf16 or fp32
	Overlap   string `json:"overlap,omitempty"`   // on: replicas exchange while they compute; or off
	Tied      bool   `json:"tied,omitempty"`      // the last layer shares parameters with the first
	Sequence  bool   `json:"sequence,omitempty"`  // layers with a tensor degree are trained sequence-parallel
	Mixture   bool   `json:"mixture,omitempty"`   // some layers are mixtures of experts, divided or not
}

// What a prediction may assume.
const (
	PrecisionMixed = "mixed" // 16-bit weights, and gradients, Adam's moments and a master copy in 32 bits
	PrecisionBF16  = "bf16"  // gradients in 16 bits, too
	precisionFull  = "fp32"
	OverlapOn      = "on"
	overlapOff     = "off"
)

// StageCost is the cost of a stage, term by term.
type StageCost = costmodel.StageCost

// String describes a stage in a line: its layers and its devices.
func (s *Stage) String() string { return s.layersText() + " on " + s.devicesText() }

func (s *Stage) layersText() string {
	if s.To == s.From+1 {
		return fmt.Sprintf("layer %d", s.From)
	}
	return fmt.Sprintf("layers %d-%d", s.From, s.To-1)
}

func (s *Stage) devicesText() string {
	var all []string
	for _, g := range s.Groups {
		all = append(all, fmt.Sprintf("%d %s", g.Count, g.Device))
	}
	return strings.Join(all, " + ")
}

// Validate reports the first fault of a plan over layers 0..layers-1 (0: any number): layers left out or given twice, empty
// stages, devices used twice, two groups of a class in a stage, shares that do not sum to the micro-batch. Errors wrap ErrPlan
// and name the field.
func (p *Plan) Validate(layers int) error {
	switch {
	case p.Version != Version:
		return bad("version", "is %d; this program reads %d", p.Version, Version)
	case p.GlobalBatch < 1 || p.MicroBatch < 1 || p.GlobalBatch%p.MicroBatch != 0:
		return bad("global_batch", "is %d with micro_batch %d; both must be above 0, the first a multiple of the second", p.GlobalBatch, p.MicroBatch)
	case len(p.Stages) == 0:
		return bad("stages", "is empty; a plan has at least one stage")
	}
	if err := p.validateSpread(); err != nil {
		return err
	}
	if err := p.validateSchedule(); err != nil {
		return err
	}
	next := 0
	taken := map[string][]Devices{}
	for s := range p.Stages {
		if s >= p.Pipeline() {
			taken = map[string][]Devices{} // later chunks use the same devices
		}
		stage, at := &p.Stages[s], fmt.Sprintf("stages[%d]", s)
		if stage.From != next || stage.To <= stage.From {
			return bad(at, "has layers %d to %d; must begin with layer %d and have at least one", stage.From, stage.To, next)
		}
		next = stage.To
		if err := stage.validate(at, p.MicroBatch, max(1, p.Context), taken); err != nil {
			return err
		}
	}
	if layers > 0 && next != layers {
		return bad("stages", "end with layer %d; the model has %d", next-1, layers)
	}
	taken = p.taken()
	for i, d := range p.Unused {
		if err := take(taken, d, fmt.Sprintf("unused[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// taken are the devices of all stages.
func (p *Plan) taken() map[string][]Devices {
	all := map[string][]Devices{}
	for _, s := range p.Stages[:p.Pipeline()] {
		for _, g := range s.Groups {
			all[g.Device] = append(all[g.Device], g.Devices)
		}
	}
	return all
}

// bad is an error about a field of a plan.
func bad(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrPlan, field, fmt.Sprintf(format, args...))
}

func (s *Stage) validate(at string, microBatch, context int, taken map[string][]Devices) error {
	if len(s.Groups) == 0 {
		return bad(at+".groups", "is empty; a stage has at least one group of devices")
	}
	samples := 0
	for g := range s.Groups {
		group, at := &s.Groups[g], fmt.Sprintf("%s.groups[%d]", at, g)
		if k := slices.IndexFunc(s.Groups[:g], func(o Group) bool { return o.Device == group.Device }); k >= 0 {
			return bad(at+".device", "is %.40q, as in groups[%d]; a stage has one group of a class: join the two, or give them stages of their own", group.Device, k)
		}
		if err := take(taken, group.Devices, at); err != nil {
			return err
		}
		if group.Count%context != 0 || group.First%context != 0 {
			return bad(at+".count", "is %d from device %d on; with context %d both must be multiples of it", group.Count, group.First, context)
		}
		if units := group.Count / context; group.Tensor < 1 || units%group.Tensor != 0 {
			return bad(at+".tensor", "is %d%s; must divide the %d devices", group.Tensor, times(group.Tensor, context), group.Count)
		}
		if n := group.Count / context / group.Tensor; len(group.MicroBatches) != n {
			return bad(at+".micro_batches", "has %d entries for %d replicas", len(group.MicroBatches), n)
		}
		for _, b := range group.MicroBatches {
			if b < 1 || b > microBatch {
				return bad(at+".micro_batches", "has a share of %d samples; must lie in 1..%d", b, microBatch)
			}
			samples += b
		}
	}
	if samples != microBatch {
		return bad(at, "its replicas take %d samples together; a micro-batch has %d", samples, microBatch)
	}
	return s.validateStrategies(at, context)
}

func (s *Stage) validateStrategies(at string, context int) error {
	next := s.From
	for i, y := range s.Strategies {
		at := fmt.Sprintf("%s.strategies[%d]", at, i)
		if y.From != next || y.To <= y.From || y.To > s.To {
			return bad(at, "is for layers %d to %d; must begin with layer %d, have at least one and end by layer %d", y.From, y.To-1, next, s.To-1)
		}
		next = y.To
		if y.Tensor != 0 && (len(s.Groups) > 1 || y.Tensor < 0 || s.Groups[0].Count/context%y.Tensor != 0) {
			return bad(at+".tensor", "is %d%s; must divide the %d devices of a stage of one group, or be left out", y.Tensor, times(y.Tensor, context), s.Groups[0].Count)
		}
		if !slices.Contains(costmodel.Shardings(), y.Sharding) {
			return bad(at+".sharding", "is %q; want none, optimizer, gradients or full", y.Sharding)
		}
		if y.Checkpoint && y.Selective {
			return bad(at+".selective", "is set, and so is checkpoint: a layer is recomputed whole, or the core of its attention alone")
		}
	}
	if next != s.To {
		return bad(at+".strategies", "end with layer %d; the stage ends with layer %d", next-1, s.To-1)
	}
	return nil
}

// times says how many devices a replica has, if there is a context degree.
func times(tensor, context int) string {
	if context == 1 {
		return ""
	}
	return fmt.Sprintf(" with context %d, %d devices a replica", context, tensor*context)
}

// take records devices as taken, or returns an error if some are taken already.
func take(taken map[string][]Devices, d Devices, at string) error {
	if d.Device == "" || d.First < 0 || d.Count < 1 || d.First > maxDevices || d.Count > maxDevices {
		return bad(at, "has %d devices %q from number %d; want a name, at least one device, and numbers up to %d", d.Count, d.Device, d.First, maxDevices)
	}
	for _, other := range taken[d.Device] {
		if d.First < other.First+other.Count && other.First < d.First+d.Count {
			return bad(at, "takes %s devices %d to %d, of which some are taken already", d.Device, d.First, d.First+d.Count-1)
		}
	}
	taken[d.Device] = append(taken[d.Device], d)
	return nil
}

// maxDevices bounds the number of devices of a class.
const maxDevices = 1 << 20
