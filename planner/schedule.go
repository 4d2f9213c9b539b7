package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// ErrSchedule is wrapped by errors about schedules that a search does not know, or that a trainer does not run. It is bad input.
var ErrSchedule = badinput.New("planner: invalid schedule")

// Schedules of a plan. "" is 1F1B, too.
const (
	Schedule1F1B        = "1f1b"
	ScheduleInterleaved = "interleaved" // 1F1B with several stages on each device, Megatron-LM's virtual pipeline stages
	ScheduleZeroBubble  = "zb-h1"       // 1F1B with the gradients of weights as passes of their own
)

// ScheduleAny asks a search for the quickest of all.
const ScheduleAny = "any"

// Schedules are all that a plan may have.
func Schedules() []string { return []string{Schedule1F1B, ScheduleInterleaved, ScheduleZeroBubble} }

// schedulesOf are those that a trainer runs; "": any trainer.
func schedulesOf(trainer string) []string {
	switch trainer {
	case "megatron":
		return []string{Schedule1F1B, ScheduleInterleaved}
	case "deepspeed":
		return []string{Schedule1F1B}
	case "torch":
		return []string{Schedule1F1B, ScheduleZeroBubble}
	}
	return Schedules()
}

// schedules are those to search: 1F1B, the one that is asked for, or any that the trainer runs.
func schedules(asked, trainer string) ([]string, error) {
	all := schedulesOf(trainer)
	switch asked {
	case "":
		return []string{Schedule1F1B}, nil
	case ScheduleAny:
		return all, nil
	}
	if !slices.Contains(Schedules(), asked) {
		return nil, fmt.Errorf("%w: %.40q; want %s, %s, %s or %s", ErrSchedule, asked, Schedule1F1B, ScheduleInterleaved, ScheduleZeroBubble, ScheduleAny)
	}
	if !slices.Contains(all, asked) {
		return nil, fmt.Errorf("%w: plans for %s run by %s, not by %s", ErrSchedule, trainer, strings.Join(all, " and "), asked)
	}
	return []string{asked}, nil
}

// schedule is the plan's, and how many stages each device has.
func (p *Plan) schedule() (s pipeline.Schedule, chunks int) {
	switch p.Schedule {
	case ScheduleInterleaved:
		return pipeline.Interleaved, p.Chunks
	case ScheduleZeroBubble:
		return pipeline.ZeroBubble, 1
	}
	return pipeline.OneForwardOneBackward, 1
}

// Pipeline is the number of stages with devices of their own: all, but interleaved those of the first chunk.
func (p *Plan) Pipeline() int {
	_, chunks := p.schedule()
	return len(p.Stages) / chunks
}

// scheduleText is the schedule, with its chunks.
func (p *Plan) scheduleText() string {
	switch {
	case p.Schedule == "":
		return Schedule1F1B
	case p.Chunks > 0:
		return fmt.Sprintf("%s in %d chunks", p.Schedule, p.Chunks)
	}
	return p.Schedule
}

// validateSchedule reports a schedule that the plan's stages and micro-batches do not allow.
func (p *Plan) validateSchedule(bad func(field, format string, args ...any) error) error {
	n := len(p.Stages)
	switch {
	case p.Schedule != "" && !slices.Contains(Schedules(), p.Schedule):
		return bad("schedule", "is %.40q; want %s, %s or %s, or leave it out for 1f1b", p.Schedule, Schedule1F1B, ScheduleInterleaved, ScheduleZeroBubble)
	case p.Schedule != ScheduleInterleaved && p.Chunks != 0:
		return bad("chunks", "is %d; only the schedule interleaved has them: leave it out", p.Chunks)
	case p.Schedule == "" || p.Schedule == Schedule1F1B:
		return nil
	case n > pipeline.MaxOperations/p.MicroBatches():
		return bad("schedule", "is %s for %d stages and %d micro-batches; their product must be at most %d", p.Schedule, n, p.MicroBatches(), pipeline.MaxOperations)
	case p.Schedule == ScheduleZeroBubble && n < 2:
		return bad("schedule", "is %s, but there is one stage; leave it out", p.Schedule)
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
