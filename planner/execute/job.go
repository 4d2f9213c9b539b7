package execute

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"evenkeel/internal/badinput"
	"evenkeel/planner"
	"evenkeel/train"
)

// errUnsupported is wrapped by errors about valid plans that ask for what this package does not run. It is bad input.
var errUnsupported = badinput.New("execute: cannot run this plan")

// MaxStages is the largest number of stages of a plan that runs.
const MaxStages = 64

const (
	maxSteps      = 1 << 40
	maxFrameBytes = 1 << 30
)

// Job is a plan that was checked against a network. It has no weights and never changes.
type Job struct {
	Plan    *planner.Plan
	Network *train.Network
	Units   []Unit
}

// NewJob checks that the plan is for the network's units and can be executed. Errors wrap planner.ErrPlan, or are bad input.
func NewJob(plan *planner.Plan, network *train.Network) (*Job, error) {
	j := &Job{Plan: plan, Network: network, Units: unitsOf(network)}
	if err := plan.Validate(0); err != nil {
		return nil, err
	}
	if to := plan.Stages[len(plan.Stages)-1].To; to != len(j.Units) {
		return nil, fmt.Errorf("%w: it is for %d layers; this network has %d, from %s to %s (%d with what has no weights): choose the model and sizes that it was made for",
			planner.ErrPlan, to, len(j.Units), j.Units[0].Name, j.Units[len(j.Units)-1].Name, network.Layers())
	}
	if len(plan.Stages) > MaxStages {
		return nil, fmt.Errorf("%w: %d stages; at most %d", errUnsupported, len(plan.Stages), MaxStages)
	}
	if plan.Schedule != "" {
		return nil, unsupported("schedule", "%s", plan.Schedule)
	}
	if plan.Context > 1 {
		return nil, unsupported("context", "context parallelism")
	}
	if plan.Experts > 1 {
		return nil, unsupported("experts", "expert parallelism")
	}
	for s, stage := range plan.Stages {
		for g, group := range stage.Groups {
			if group.Tensor > 1 {
				return nil, unsupported(fmt.Sprintf("stages[%d].groups[%d].tensor", s, g), "a tensor degree of %d", group.Tensor)
			}
		}
		for i, y := range stage.Strategies {
			at := fmt.Sprintf("stages[%d].strategies[%d]", s, i)
			switch {
			case y.Selective:
				return nil, unsupported(at+".selective", "a recomputation of the core of attention alone")
			case y.Tensor > 1:
				return nil, unsupported(at+".tensor", "a tensor degree of %d", y.Tensor)
			case y.Sharding == planner.Full || y.Sharding == planner.Gradients:
				return nil, unsupported(at+".sharding", "sharding %s", y.Sharding)
			}
		}
		for _, width := range []int{j.width(s), j.width(s + 1)} {
			if bytes := 4 * float64(width) * float64(plan.MicroBatch); bytes > maxFrameBytes {
				return nil, unsupported("micro_batch", "%.3g bytes between stages for a micro-batch", bytes)
			}
		}
	}
	return j, nil
}

func unsupported(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s asks for %s. It executes pipeline stages by 1F1B, data-parallel replicas (sharding none or optimizer) and checkpointing; python3 -m evenkeel.plan run executes tensor degrees and stages over several machines, too; for all else write the plan for a trainer",
		errUnsupported, field, fmt.Sprintf(format, args...))
}

// width is the number of floats of a sample that go into a stage, or out of the last stage.
func (j *Job) width(stage int) int {
	if stage == len(j.Plan.Stages) {
		return j.Network.Positions() * j.Network.Classes()
	}
	p, err := j.part(j.Plan.Stages[stage].From)
	if err != nil {
		return math.MaxInt // units are always parts
	}
	in, _ := p.Sizes()
	return in
}

func (j *Job) part(unit int) (*train.Part, error) {
	return j.Network.Part(j.Units[unit].From, j.Units[unit].To)
}

// checkpointed reports whether a unit is recomputed for its backward pass.
func (j *Job) checkpointed(unit int) bool {
	for _, s := range j.Plan.Stages {
		for _, y := range s.Strategies {
			if y.From <= unit && unit < y.To {
				return y.Checkpoint
			}
		}
	}
	return false
}

// shares are the samples of a micro-batch that each replica of a stage takes.
func (j *Job) shares(stage int) []int {
	var all []int
	for _, g := range j.Plan.Stages[stage].Groups {
		all = append(all, g.MicroBatches...)
	}
	return all
}

// Replicas is the number of replicas of all stages together.
func (j *Job) Replicas() int {
	n := 0
	for s := range j.Plan.Stages {
		n += len(j.shares(s))
	}
	return n
}

// planHash is the hash of the plan without its prediction. All stages of a run must have the same.
func (j *Job) planHash() string {
	p := *j.Plan
	p.Predicted = nil
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error() // every plan can be encoded
	}
	sum := xxh3.Hash128(text).Bytes()
	return fmt.Sprintf("%x", sum[:])
}

// Training says how the job's network is trained.
type Training struct {
	Optimizer train.Optimizer `json:"optimizer"`
	Seed      uint64          `json:"seed"` // of the weights and the order of the data, as in train.Config
	Steps     int             `json:"steps"`
}

// validate reports the first fault; errors wrap train.ErrUsage.
func (t Training) validate() error {
	if t.Steps < 1 || t.Steps > maxSteps {
		return fmt.Errorf("%w: %d steps; want 1 to %d", train.ErrUsage, t.Steps, int64(maxSteps))
	}
	return train.Config{MicroBatches: []int{1}, Optimizer: t.Optimizer, Seed: t.Seed}.Validate()
}

// Unit is layers From..To-1 of a network, which a plan counts as one layer.
type Unit struct {
	Name     string
	From, To int
}

// unitsOf divides a network into units, the layers of plans. Exactly one tensor flows between two units, so a stage may end there. Layers
// without parameters belong to the layer before them. Layers whose names have the same text before the first dot (such as block1.norm1 to
// block1.add2 of a transformer) form one unit with that name.
func unitsOf(n *train.Network) []Unit {
	var units []Unit
	for layer := range n.Layers() {
		group, _, grouped := strings.Cut(n.LayerName(layer), ".")
		last := len(units) - 1
		if last >= 0 && (n.Crossed(layer) || len(n.LayerParams(layer)) == 0 || grouped && units[last].Name == group) {
			units[last].To = layer + 1
			continue
		}
		units = append(units, Unit{group, layer, layer + 1})
	}
	return units
}
