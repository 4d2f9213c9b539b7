package forward

import (
	"context"
	"errors"
	"math"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train/data"
	"github.com/evenkeel/evenkeel/train/task"
)

// setup is a task's, with what is set aside for deciding when to stop.
type setup struct {
	*task.Setup
	validation data.Set // nil: none
	stopAfter  int      // steps
}

// setAside takes every tenth of the training examples for validation, if a run is to stop by it. What is held out for the test decides nothing.
func setAside(s *task.Setup, stopAfter int) *setup {
	all := &setup{Setup: s, stopAfter: stopAfter}
	if stopAfter > 0 {
		all.Training, all.validation = data.Split(s.Training, 10)
	}
	return all
}

// validator takes the loss on the validation examples at the end of every block, and says when it has not fallen for too long. No processor of
// launch has it: the others would go on without one that takes its time. They hear of the end through the run.
type validator struct {
	work *setup
	validated
	due bool // to stop
}

// validated is what is told of it.
type validated struct {
	Loss float64 `json:"lowest_loss"`
	At   int     `json:"lowest_after"` // steps
}

// newValidator is nil for runs that do not stop by validation.
func newValidator(work *setup) *validator {
	if work.stopAfter == 0 {
		return nil
	}
	return &validator{work: work, validated: validated{Loss: math.Inf(1)}}
}

// take validates the weights after so many steps.
func (v *validator) take(steps int, w *forward.Weights) error {
	if v == nil {
		return nil
	}
	_, loss, err := forward.Evaluate(v.work.Network, w, v.work.validation)
	if err != nil {
		return err
	}
	v.note(steps, loss)
	return nil
}

// note notes a loss; it is due to stop if the loss has not fallen for as long as it may.
func (v *validator) note(steps int, loss float64) {
	if loss < v.Loss {
		v.Loss, v.At = loss, steps
	}
	v.due = steps-v.At >= v.work.stopAfter
}

// end is called at the end of a block.
func (v *validator) end(ctx context.Context, r *forward.Replica, stop func(context.Context) error) error {
	if r.Done() {
		return v.take(r.Steps(), r.Weights)
	}
	return errors.Join(v.take(r.Steps(), r.Weights), v.ask(ctx, stop))
}

// ask asks to stop, if it is time; also at the beginning, as what asked before may have ended then.
func (v *validator) ask(ctx context.Context, stop func(context.Context) error) error {
	if v == nil || !v.due {
		return nil
	}
	return stop(ctx)
}

// told is what is told at the end; nil without a validation.
func (v *validator) told() *validated {
	if v == nil || v.At == 0 {
		return nil
	}
	return &v.validated
}
