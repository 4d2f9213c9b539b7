package planner

import "fmt"

// Order is what a stage does in an iteration, first to last, without times. The error wraps ErrPipeline.
func Order(stage, stages, microBatches int, schedule Schedule) ([]Operation, error) {
	if stage < 0 || stage >= stages || microBatches < 1 || stages > 1<<20/microBatches {
		return nil, fmt.Errorf("%w: stage %d of %d with %d micro-batches", ErrPipeline, stage, stages, microBatches)
	}
	all := make([]Operation, 2*microBatches)
	for n := range all {
		all[n] = operation(stage, stages, microBatches, n, schedule)
	}
	return all, nil
}

// InFlight is how many micro-batches a stage holds activations of at most.
func InFlight(stage, stages, microBatches int, schedule Schedule) int {
	if schedule == OneForwardOneBackward {
		return min(microBatches, stages-stage)
	}
	return microBatches
}
