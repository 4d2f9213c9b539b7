package execute

import (
	"fmt"
	"math"

	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// Simulate is the seconds of an iteration of stages that take so long for a micro-batch, by the 1F1B schedule. Links
// work beside the stages, as they do here: each direction carries one transfer at a time while both stages compute.
// (pipeline.Simulate keeps both waiting, as trainers on GPUs do.) Errors wrap pipeline.ErrPipeline.
func Simulate(stages []pipeline.Timing, microBatches int) (float64, error) {
	if len(stages) == 0 {
		return 0, fmt.Errorf("%w: no stages", pipeline.ErrPipeline)
	}
	var orders [][]pipeline.Operation
	for i, s := range stages {
		for _, t := range []float64{s.Forward, s.Backward, s.SendNext} {
			if !(t >= 0) || math.IsInf(t, 1) {
				return 0, fmt.Errorf("%w: stage %d: time %v is not a finite number of at least 0", pipeline.ErrPipeline, i, t)
			}
		}
		order, err := pipeline.Order(i, len(stages), microBatches)
		if err != nil {
			return 0, err
		}
		orders = append(orders, order)
	}
	p := len(stages)
	forward, backward := make([][]float64, p), make([][]float64, p) // when inputs and gradients are there
	ahead, behind := make([]float64, p), make([]float64, p)         // when the link to the next stage is free, each way
	now := make([]float64, p)
	for left := 2 * p * microBatches; left > 0; {
		for i, s := range stages {
			for len(orders[i]) > 0 {
				op := orders[i][0]
				there, outer := forward[i], i == 0
				if op.Backward {
					there, outer = backward[i], i == p-1
				}
				if !outer {
					if len(there) <= op.MicroBatch {
						break
					}
					now[i] = max(now[i], there[op.MicroBatch])
				}
				if op.Backward {
					now[i] += s.Backward
					if i > 0 {
						behind[i-1] = max(behind[i-1], now[i]) + stages[i-1].SendNext
						backward[i-1] = append(backward[i-1], behind[i-1])
					}
				} else {
					now[i] += s.Forward
					if i < p-1 {
						ahead[i] = max(ahead[i], now[i]) + s.SendNext
						forward[i+1] = append(forward[i+1], ahead[i])
					}
				}
				orders[i] = orders[i][1:]
				left--
			}
		}
	}
	length := 0.0
	for _, t := range now {
		length = max(length, t)
	}
	return length, nil
}
