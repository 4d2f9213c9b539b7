package pipeline

import "fmt"

// Order is the sequence of a stage's passes in an iteration, without times. The error wraps ErrPipeline.
func Order(stage, stages, microBatches int, schedule Schedule) ([]Operation, error) {
	if stage < 0 || stage >= stages || microBatches < 1 || stages > MaxOperations/microBatches {
		return nil, fmt.Errorf("%w: stage %d of %d with %d micro-batches", ErrPipeline, stage, stages, microBatches)
	}
	all := make([]Operation, 2*microBatches)
	for n := range all {
		all[n] = operation(stage, stages, microBatches, n, schedule)
	}
	return all, nil
}

// InFlight is the largest number of micro-batches whose activations a stage holds at a time.
func InFlight(stage, stages, microBatches int, schedule Schedule) int {
	if schedule == OneForwardOneBackward {
		return min(microBatches, stages-stage)
	}
	return microBatches
}
