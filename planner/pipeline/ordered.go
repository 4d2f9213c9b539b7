package pipeline

import (
	"fmt"
	"slices"
)

// Orders are the passes of each device in an iteration, without times, under a schedule with so many stages on each device: stage k
// lies on device k mod devices. Interleaved needs micro-batches in multiples of the devices; others have one stage a device.
// Errors wrap ErrPipeline.
func Orders(schedule Schedule, devices, chunks, microBatches int) ([][]Operation, error) {
	if devices < 1 || chunks < 1 || microBatches < 1 || devices > MaxOperations/microBatches/chunks {
		return nil, fmt.Errorf("%w: %d devices x %d stages x %d micro-batches; all at least 1, their product at most %d", ErrPipeline, devices, chunks, microBatches, MaxOperations)
	}
	if chunks > 1 && schedule != Interleaved || schedule == Interleaved && microBatches%devices != 0 {
		return nil, fmt.Errorf("%w: %v with %d stages on each of %d devices and %d micro-batches", ErrPipeline, schedule, chunks, devices, microBatches)
	}
	all := make([][]Operation, devices)
	for d := range all {
		switch schedule {
		case Interleaved:
			all[d] = interleaved(d, devices, chunks, microBatches)
		case ZeroBubble:
			all[d] = zeroBubble(d, devices, microBatches)
		default:
			order, err := Order(d, devices, microBatches, schedule)
			if err != nil {
				return nil, err
			}
			all[d] = order
		}
	}
	return all, nil
}

// SimulateOrders returns the operations of one iteration with their times, device by device, and its length in seconds. stages are
// those of the model, first to last. A device does its passes in their order; a transfer keeps both its devices from computing.
func SimulateOrders(stages []Timing, orders [][]Operation) ([][]Operation, float64, error) {
	c, left, err := newClock(stages, orders)
	if err != nil {
		return nil, 0, err
	}
	return c.all(orders, left, c.run, func(op *Operation) float64 { return op.Free })
}

// clock knows when passes were computed.
type clock struct {
	stages []Timing
	split  bool           // the gradients of weights are passes of their own
	done   [2][][]float64 // forward and backward passes, by stage and micro-batch; -1: not yet
}

// newClock is a clock before the first pass, and the number of passes.
func newClock(stages []Timing, orders [][]Operation) (c *clock, passes int, err error) {
	c = &clock{stages: stages}
	p, most := len(stages), 0
	for _, order := range orders {
		passes += len(order)
		for _, op := range order {
			if op.Stage < 0 || op.Stage >= p || op.MicroBatch < 0 || op.MicroBatch >= MaxOperations/p {
				return nil, 0, fmt.Errorf("%w: a pass of stage %d of %d, micro-batch %d", ErrPipeline, op.Stage, p, op.MicroBatch)
			}
			c.split, most = c.split || op.Weights, max(most, op.MicroBatch)
		}
	}
	for i := range c.done {
		c.done[i] = make([][]float64, p)
		for k := range c.done[i] {
			c.done[i][k] = slices.Repeat([]float64{-1}, most+1)
		}
	}
	return c, passes, check(stages, 1, OneForwardOneBackward)
}

// all runs each device's passes in their order, as soon as their inputs are there; free is when a pass leaves its device to the next.
func (c *clock) all(orders [][]Operation, left int, run func(*Operation) bool, free func(*Operation) float64) ([][]Operation, float64, error) {
	ops := make([][]Operation, len(orders))
	length := 0.0
	for left > 0 {
		before := left
		for d, order := range orders {
			for len(ops[d]) < len(order) {
				op := order[len(ops[d])]
				if n := len(ops[d]); n > 0 {
					op.Start = free(&ops[d][n-1])
				}
				if !run(&op) {
					break
				}
				length = max(length, op.End)
				ops[d] = append(ops[d], op)
				left--
			}
		}
		if left == before {
			return nil, 0, fmt.Errorf("%w: the passes wait for each other", ErrPipeline)
		}
	}
	return ops, length, nil
}

// run sets the times of a pass that may start when its device is free; false: its input is not there yet.
func (c *clock) run(op *Operation) bool {
	direction, seconds, from, to := c.pass(op)
	if op.Weights {
		op.End = op.Start + seconds
		op.Free = op.End
		return true
	}
	if from >= 0 && from < len(c.stages) {
		arrived := c.done[direction][from][op.MicroBatch]
		if arrived < 0 {
			return false
		}
		op.Start = max(op.Start, arrived) + c.stages[min(op.Stage, from)].SendNext // until it is received
	}
	op.End = op.Start + seconds
	op.Free = op.End
	if to >= 0 && to < len(c.stages) {
		op.Free += c.stages[min(op.Stage, to)].SendNext
	}
	c.done[direction][op.Stage][op.MicroBatch] = op.End
	return true
}

// pass is the direction of a pass, its seconds, and the stages that its input comes from and its output goes to.
func (c *clock) pass(op *Operation) (direction int, seconds float64, from, to int) {
	s := &c.stages[op.Stage]
	switch {
	case op.Weights:
		return 1, s.Weights, -1, -1
	case !op.Backward:
		return 0, s.Forward, op.Stage - 1, op.Stage + 1
	case c.split:
		return 1, s.Backward - s.Weights, op.Stage + 1, op.Stage - 1
	}
	return 1, s.Backward, op.Stage + 1, op.Stage - 1
}
