package pipeline

import (
	"fmt"
	"slices"
)

// OrdersAhead are the passes of each stage under H-1F1B (Liang et al., HAPT: Heterogeneity-Aware Automated Parallel Training on
// Heterogeneous Clusters, arXiv 2509.24859): 1F1B in which stage i begins with warmup[i] forward passes, or all. These must not rise
// from stage to stage, or stages would wait for each other. Errors wrap ErrPipeline.
func OrdersAhead(warmup []int, microBatches int) ([][]Operation, error) {
	if len(warmup) == 0 || microBatches < 1 || len(warmup) > MaxOperations/microBatches {
		return nil, fmt.Errorf("%w: %d stages x %d micro-batches; both at least 1, their product at most %d", ErrPipeline, len(warmup), microBatches, MaxOperations)
	}
	all := make([][]Operation, len(warmup))
	for i, ahead := range warmup {
		if ahead < 1 || i > 0 && ahead > warmup[i-1] {
			return nil, fmt.Errorf("%w: forward passes %v before the first backward pass; must be at least 1, and not rise", ErrPipeline, warmup)
		}
		ahead = min(ahead, microBatches)
		all[i] = make([]Operation, 0, 2*microBatches)
		for n := range microBatches + ahead {
			if n >= ahead {
				all[i] = append(all[i], Operation{Stage: i, MicroBatch: n - ahead, Backward: true})
			}
			if n < microBatches {
				all[i] = append(all[i], Operation{Stage: i, MicroBatch: n})
			}
		}
	}
	return all, nil
}

// SimulateOverlapped is SimulateOrders with transfers beside computing: a device begins a pass when it has computed the one before and
// the input has arrived. Over a boundary in a direction one output is on its way at a time; Free of a pass is when its output arrives.
func SimulateOverlapped(stages []Timing, orders [][]Operation) ([][]Operation, float64, error) {
	c, left, err := newClock(stages, orders)
	if err != nil {
		return nil, 0, err
	}
	links := [2][]float64{make([]float64, len(stages)), make([]float64, len(stages))} // when they are free, by direction and boundary
	compute := func(op *Operation) bool { return c.compute(op, &links) }
	return c.all(orders, left, compute, func(op *Operation) float64 { return op.End })
}

// compute sets the times of a pass that may start when its device is free; false: its input is not on its way yet. Outputs are on their
// way in the order of the passes that computed them.
func (c *clock) compute(op *Operation, links *[2][]float64) bool {
	direction, seconds, from, to := c.pass(op)
	if !op.Weights && from >= 0 && from < len(c.stages) {
		arrived := c.done[direction][from][op.MicroBatch]
		if arrived < 0 {
			return false
		}
		op.Start = max(op.Start, arrived)
	}
	op.End = op.Start + seconds
	op.Free = op.End
	if op.Weights {
		return true
	}
	if to >= 0 && to < len(c.stages) {
		boundary := min(op.Stage, to)
		link := &links[direction][boundary]
		*link = max(*link, op.End) + c.stages[boundary].SendNext
		op.Free = *link
	}
	c.done[direction][op.Stage][op.MicroBatch] = op.Free
	return true
}

// Ahead is how many forward passes each stage should begin with so that none runs dry where transfers are beside computing: by Little's
// law as many as pass through it while one goes on to the last stage and comes back, at the pace of the slowest; no fewer than by 1F1B.
func Ahead(stages []Timing, microBatches int) []int {
	slowest, back := 0.0, 0.0
	for _, s := range stages {
		slowest = max(slowest, s.Forward+s.Backward)
	}
	all := make([]int, len(stages))
	for i, s := range slices.Backward(stages) {
		if back += s.Forward + s.Backward; i < len(stages)-1 {
			back += 2 * s.SendNext
		}
		all[i] = len(stages) - i
		if slowest > 0 && back/slowest < float64(microBatches) {
			all[i] = max(all[i], int(back/slowest+1-1e-9))
		} else if slowest > 0 {
			all[i] = max(all[i], microBatches)
		}
		all[i] = min(all[i], microBatches)
	}
	return all
}
