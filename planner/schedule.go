package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/pipeline"
)

// ErrSchedule is wrapped by errors about schedules that are unknown, or that a trainer does not run. It is bad input.
var ErrSchedule = badinput.New("planner: invalid schedule")

// Schedules of a plan. "" also means 1F1B.
const (
	Schedule1F1B        = string(pipeline.OneForwardOneBackward)
	ScheduleInterleaved = string(pipeline.Interleaved) // 1F1B with several stages on each device: Megatron-LM's virtual pipeline stages
	ScheduleZeroBubble  = string(pipeline.ZeroBubble)  // 1F1B that computes the gradients of weights in separate passes
	ScheduleAhead       = string(pipeline.SentAhead)   // 1F1B that sends more micro-batches ahead over slow links while stages compute
)

// TransfersOverlap in a plan says that stages compute while they send and receive.
const TransfersOverlap = "overlap"

// ScheduleAny asks a search for the quickest schedule.
const ScheduleAny = "any"

// Schedules are all schedules of plans.
func Schedules() []string {
	return []string{Schedule1F1B, ScheduleInterleaved, ScheduleZeroBubble, ScheduleAhead}
}

// schedulesOf are the schedules that a trainer runs; "": any trainer.
func schedulesOf(trainer string) []string {
	switch trainer {
	case "megatron":
		return []string{Schedule1F1B, ScheduleInterleaved}
	case "deepspeed":
		return []string{Schedule1F1B}
	}
	return Schedules()
}

// schedules are the schedules to search: 1F1B, the one that is asked for, or all that the trainer runs.
func schedules(asked, trainer string) ([]string, error) {
	all := schedulesOf(trainer)
	switch asked {
	case "":
		return []string{Schedule1F1B}, nil
	case ScheduleAny:
		return all, nil
	}
	if !slices.Contains(Schedules(), asked) {
		return nil, fmt.Errorf("%w: %.40q; want %s or %s", ErrSchedule, asked, strings.Join(Schedules(), ", "), ScheduleAny)
	}
	if !slices.Contains(all, asked) {
		return nil, fmt.Errorf("%w: plans for %s run by %s, not by %s", ErrSchedule, trainer, strings.Join(all, ", "), asked)
	}
	return []string{asked}, nil
}

// passes says in which order the stages of the plan run their passes.
func (p *Plan) passes() costmodel.Passes {
	overlap := p.Transfers == TransfersOverlap || p.Schedule == ScheduleAhead
	schedule := pipeline.Schedule(cmp.Or(p.Schedule, Schedule1F1B))
	return costmodel.Passes{Schedule: schedule, Chunks: max(1, p.Chunks), Warmup: p.Warmup, Overlap: overlap}
}

// Pipeline is the number of stages with devices of their own: all stages, or those of the first chunk if the schedule is interleaved.
func (p *Plan) Pipeline() int { return len(p.Stages) / max(1, p.Chunks) }

// InRounds says whether PyTorch's ScheduleInterleavedZeroBubble takes the number of micro-batches, which it runs in equal rounds of at least one
// per stage.
func (p *Plan) InRounds() bool { return p.MicroBatches()%max(1, p.MicroBatches()/p.Pipeline()) == 0 }

// scheduleFields reports an unknown schedule, and fields that the schedule does not have.
func (p *Plan) scheduleFields() error {
	switch {
	case p.Schedule != "" && !slices.Contains(Schedules(), p.Schedule):
		return bad("schedule", "is %.40q; want %s, or leave it out for 1f1b", p.Schedule, strings.Join(Schedules(), ", "))
	case p.Schedule != ScheduleInterleaved && p.Chunks != 0:
		return bad("chunks", "is %d; only the schedule interleaved has them: leave it out", p.Chunks)
	case p.Schedule != ScheduleAhead && len(p.Warmup) > 0:
		return bad("warmup", "is %v; only the schedule h-1f1b has it: leave it out", p.Warmup)
	case p.Transfers != "" && (p.Transfers != TransfersOverlap || p.Schedule != ScheduleInterleaved && p.Schedule != ScheduleZeroBubble):
		return bad("transfers", "is %.40q by %s; interleaved and zb-h1 may have overlap, h-1f1b always does: leave it out", p.Transfers, cmp.Or(p.Schedule, Schedule1F1B))
	}
	return nil
}

// validateSchedule reports a schedule that the plan's stages and micro-batches do not allow.
func (p *Plan) validateSchedule() error {
	if err := p.scheduleFields(); err != nil {
		return err
	}
	n := len(p.Stages)
	switch {
	case p.Schedule == "" || p.Schedule == Schedule1F1B:
		return nil
	case n > pipeline.MaxOperations/p.MicroBatches():
		return bad("schedule", "is %s for %d stages and %d micro-batches; their product must be at most %d", p.Schedule, n, p.MicroBatches(), pipeline.MaxOperations)
	case p.Schedule != ScheduleInterleaved && n < 2:
		return bad("schedule", "is %s, but there is one stage; leave it out", p.Schedule)
	case p.Schedule == ScheduleAhead:
		return p.validateWarmup()
	case p.Schedule == ScheduleZeroBubble:
		return nil
	case p.Chunks < 2 || n%p.Chunks != 0 || n == p.Chunks:
		return bad("chunks", "is %d with %d stages; must be at least 2, and divide them into 2 or more", p.Chunks, n)
	case p.MicroBatches()%p.Pipeline() != 0:
		return bad("schedule", "is interleaved with %d micro-batches; must be a multiple of the %d stages of a chunk", p.MicroBatches(), p.Pipeline())
	}
	same := func(a, b Group) bool {
		return a.Devices == b.Devices && a.Tensor == b.Tensor && slices.Equal(a.MicroBatches, b.MicroBatches)
	}
	for k := p.Pipeline(); k < n; k++ {
		if of := k % p.Pipeline(); !slices.EqualFunc(p.Stages[k].Groups, p.Stages[of].Groups, same) {
			return bad(fmt.Sprintf("stages[%d].groups", k), "are not those of stages[%d]; interleaved in %d chunks, stage %d lies on the same devices", of, p.Chunks, k)
		}
	}
	return nil
}

// validateWarmup reports a warm-up of h-1f1b with which stages would wait for each other.
func (p *Plan) validateWarmup() error {
	if len(p.Warmup) != len(p.Stages) {
		return bad("warmup", "has %d entries for %d stages; h-1f1b has one for each", len(p.Warmup), len(p.Stages))
	}
	for i, n := range p.Warmup {
		if n < 1 || n > p.MicroBatches() || i > 0 && n > p.Warmup[i-1] {
			return bad(fmt.Sprintf("warmup[%d]", i), "is %d; must lie in 1 to the %d micro-batches, and not above that of the stage before", n, p.MicroBatches())
		}
	}
	return nil
}
