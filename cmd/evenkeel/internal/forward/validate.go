package forward

import (
	"context"
	"errors"
	"math"

	"evenkeel/forward"
	"evenkeel/train/data"
	"evenkeel/train/task"
)

// setup is a task's network and data, with the examples set aside for deciding when to stop.
type setup struct {
	*task.Setup
	validation data.Set // nil: none
	stopAfter  int      // steps
}

// setAside takes every tenth training example for validation, if a run is to stop by it. The test set has no part in that.
func setAside(s *task.Setup, stopAfter int) *setup {
	all := &setup{Setup: s, stopAfter: stopAfter}
	if stopAfter > 0 {
		all.Training, all.validation = data.Split(s.Training, 10)
	}
	return all
}

// validator computes the loss on the validation examples after every block, and says when it has not fallen for too long. With
// launch it is in the launching process, not in a rank: the run would go on without a busy rank.
type validator struct {
	work *setup
	validated
	due bool // to stop
}

// validated is its part of the summary.
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

// take validates the weights after a number of steps.
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

// note records a loss; the run is due to stop if the loss has not fallen for stopAfter steps.
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

// ask asks to stop, if it is time. It is also called at the start of a process: one before it may have ended before it was heard.
func (v *validator) ask(ctx context.Context, stop func(context.Context) error) error {
	if v == nil || !v.due {
		return nil
	}
	return stop(ctx)
}

// told returns the summary's part; nil without a validation.
func (v *validator) told() *validated {
	if v == nil || v.At == 0 {
		return nil
	}
	return &v.validated
}
