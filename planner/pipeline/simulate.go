package pipeline

import (
	"errors"
	"fmt"
	"math"
)

// ErrPipeline is wrapped by errors about stages or schedules that cannot be simulated.
var ErrPipeline = errors.New("pipeline: invalid pipeline")

// MaxOperations bounds the number of stages times the number of micro-batches of a simulation.
const MaxOperations = 1 << 20

// Timing holds one stage's seconds per micro-batch, all finite and at least 0. SendNext is the transfer of an
// activation to the next stage, and of its gradient back; it is ignored for the last stage. Weights is the part of Backward that
// ZeroBubble runs apart.
type Timing struct{ Forward, Backward, SendNext, Weights float64 }

// Operation is one pass of a stage, in seconds from the start of the iteration: it computes from Start to End and sends
// its output until Free.
type Operation struct {
	Stage, MicroBatch int
	Backward          bool
	Weights           bool // with Backward: the gradients of the weights, where they are a pass of their own
	Start, End, Free  float64
}

// Simulate returns the operations of one iteration, stage by stage in order of time, and its length in seconds.
// A transfer keeps both its stages from computing, as in Megatron-LM and in Sailor's measurements: without this, plans of
// four stages are predicted 15% too fast.
func Simulate(stages []Timing, microBatches int, schedule Schedule) ([][]Operation, float64, error) {
	if err := check(stages, microBatches, schedule); err != nil {
		return nil, 0, err
	}
	p, m := len(stages), microBatches
	ops := make([][]Operation, p)
	arrived := [2][][]float64{make([][]float64, p), make([][]float64, p)} // forward inputs, gradients
	for i := range p {
		ops[i] = make([]Operation, 0, 2*m)
	}
	arrived[0][0], arrived[1][p-1] = make([]float64, m), make([]float64, m)
	length := 0.0
	for left := 2 * m * p; left > 0; {
		for i, s := range stages {
			for len(ops[i]) < 2*m {
				op := operation(i, p, m, len(ops[i]), schedule)
				direction, seconds, from, to := 0, s.Forward, i-1, i+1
				if op.Backward {
					direction, seconds, from, to = 1, s.Backward, i+1, i-1
				}
				if len(arrived[direction][i]) <= op.MicroBatch {
					break
				}
				op.Start = arrived[direction][i][op.MicroBatch]
				if n := len(ops[i]); n > 0 {
					op.Start = max(op.Start, ops[i][n-1].Free)
				}
				if from >= 0 && from < p {
					op.Start += stages[min(i, from)].SendNext // until it is received
				}
				op.End = op.Start + seconds
				op.Free = op.End
				if to >= 0 && to < p {
					op.Free += stages[min(i, to)].SendNext
					arrived[direction][to] = append(arrived[direction][to], op.End)
				}
				length = max(length, op.End)
				ops[i] = append(ops[i], op)
				left--
			}
		}
	}
	return ops, length, nil
}

func check(stages []Timing, microBatches int, schedule Schedule) error {
	if len(stages) == 0 || microBatches < 1 || len(stages) > MaxOperations/microBatches {
		return fmt.Errorf("%w: %d stages x %d micro-batches; both at least 1, their product at most %d",
			ErrPipeline, len(stages), microBatches, MaxOperations)
	}
	if schedule != OneForwardOneBackward && schedule != GPipe {
		return fmt.Errorf("%w: %v is simulated by its orders", ErrPipeline, schedule)
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

// operation is the n-th of 2m operations of stage i of p.
func operation(i, p, m, n int, schedule Schedule) Operation {
	ahead := InFlight(i, p, m, schedule)
	// After ahead forward passes, backward and forward alternate until no forward pass is left.
	switch after := n - ahead; {
	case after < 0:
		return Operation{Stage: i, MicroBatch: n}
	case after >= 2*(m-ahead):
		return Operation{Stage: i, MicroBatch: n - m, Backward: true}
	case after%2 == 0:
		return Operation{Stage: i, MicroBatch: after / 2, Backward: true}
	default:
		return Operation{Stage: i, MicroBatch: ahead + after/2}
	}
}
