package pipeline

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrPipeline is wrapped by errors about stages or schedules that cannot be simulated.
var ErrPipeline = errors.New("pipeline: invalid pipeline")

// MaxOperations bounds the number of stages times the number of micro-batches of a simulation.
const MaxOperations = 1 << 20

// Timing holds one stage's seconds per micro-batch, all finite and at least 0. SendNext is the transfer of an activation to the
// next stage, and also that of its gradient back; it is ignored for the last stage. Weights is the part of Backward that
// ZeroBubble runs as a separate pass.
type Timing struct{ Forward, Backward, SendNext, Weights float64 }

// Operation is one pass of a stage, in seconds from the start of the iteration: it computes from Start to End, and its output is sent until Free.
type Operation struct {
	Stage, MicroBatch int
	Backward          bool
	Weights           bool // with Backward: a separate pass for the gradients of the weights
	Start, End, Free  float64
}

// Simulate returns the operations of one iteration with their times, device by device, and its length in seconds. stages are the
// stages of the model, first to last; orders are the passes of each device, in order.
//
// Without overlap, neither device computes during a transfer. Megatron-LM and Sailor's measurements behave like this; otherwise
// plans of four stages would be predicted 15% too fast. With overlap, transfers run beside computing: a device begins a pass
// when the pass before it is computed and its input has arrived. In each direction, a boundary transfers one output at a time,
// in the order in which they were computed.
func Simulate(stages []Timing, orders [][]Operation, overlap bool) ([][]Operation, float64, error) {
	c, left, err := newClock(stages, orders, overlap)
	if err != nil {
		return nil, 0, err
	}
	ops := make([][]Operation, len(orders))
	length := 0.0
	for left > 0 {
		before := left
		for d, order := range orders {
			for len(ops[d]) < len(order) {
				op := order[len(ops[d])]
				if n := len(ops[d]); n > 0 {
					op.Start = ops[d][n-1].Free
					if overlap {
						op.Start = ops[d][n-1].End
					}
				}
				if !c.run(&op) {
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

type clock struct {
	stages  []Timing
	overlap bool
	split   bool           // the gradients of weights have separate passes
	done    [2][][]float64 // by direction, stage and micro-batch: when the output can be received; -1: not yet
	links   [2][]float64   // with overlap, by direction and boundary: when the boundary is free
}

// newClock returns a clock before the first pass, and the number of passes.
func newClock(stages []Timing, orders [][]Operation, overlap bool) (c *clock, passes int, err error) {
	c = &clock{stages: stages, overlap: overlap}
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
		c.done[i], c.links[i] = make([][]float64, p), make([]float64, p)
		for k := range c.done[i] {
			c.done[i][k] = slices.Repeat([]float64{-1}, most+1)
		}
	}
	return c, passes, check(stages, 1)
}

// run sets the times of a pass. op.Start is when its device is free. False: its input has not been computed yet.
func (c *clock) run(op *Operation) bool {
	direction, seconds, from, to := c.pass(op)
	if !op.Weights && from >= 0 && from < len(c.stages) {
		arrived := c.done[direction][from][op.MicroBatch]
		if arrived < 0 {
			return false
		}
		op.Start = max(op.Start, arrived)
		if !c.overlap {
			op.Start += c.stages[min(op.Stage, from)].SendNext // until it is received
		}
	}
	op.End = op.Start + seconds
	op.Free = op.End
	if op.Weights {
		return true
	}
	if to >= 0 && to < len(c.stages) {
		boundary := min(op.Stage, to)
		if c.overlap {
			link := &c.links[direction][boundary]
			*link = max(*link, op.End) + c.stages[boundary].SendNext
			op.Free = *link
		} else {
			op.Free += c.stages[boundary].SendNext
		}
	}
	c.done[direction][op.Stage][op.MicroBatch] = op.End
	if c.overlap {
		c.done[direction][op.Stage][op.MicroBatch] = op.Free
	}
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

// check reports stages that cannot be simulated.
func check(stages []Timing, microBatches int) error {
	if len(stages) == 0 || microBatches < 1 || len(stages) > MaxOperations/microBatches {
		return fmt.Errorf("%w: %d stages x %d micro-batches; both at least 1, their product at most %d",
			ErrPipeline, len(stages), microBatches, MaxOperations)
	}
	for i, s := range stages {
		for _, t := range []float64{s.Forward, s.Backward, s.SendNext, s.Weights, s.Backward - s.Weights} {
			if !(t >= 0) || math.IsInf(t, 1) {
				return fmt.Errorf("%w: stage %d: time %v is not a finite number of at least 0", ErrPipeline, i, t)
			}
		}
	}
	return nil
}
