package costmodel

import "github.com/evenkeel/evenkeel/planner/pipeline"

// held is what a micro-batch holds in a stage, in bytes of a device of each group: until its backward pass, and, where the gradients of
// weights are a pass of their own, between the two. What was recomputed for the first is kept for the second.
type held struct{ kept, whole [MaxGroups]float64 }

// PriceScheduled prices stages under a schedule with so many of them on each device: stage k lies on the devices of stage k mod
// len(stages)/chunks. Memory is that of a device, over all its stages. Seconds is that of Price for 1F1B, and 0 for others, whose
// Orders are to be simulated. Errors are an *UnpricedError, or wrap pipeline.ErrPipeline.
func (m *Model) PriceScheduled(globalBatch, microBatch int, stages []Stage, schedule pipeline.Schedule, chunks int) (*Cost, error) {
	cost, all, err := m.priceStages(globalBatch, microBatch, stages)
	if err != nil || schedule == pipeline.OneForwardOneBackward {
		return cost, err
	}
	devices := len(stages) / chunks
	if cost.Orders, err = pipeline.Orders(schedule, devices, chunks, globalBatch/microBatch); err != nil {
		return nil, err
	}
	cost.Seconds = 0
	for d, order := range cost.Orders {
		for g := range stages[d].Groups {
			u := cost.Stages[d].Memory[g]
			for k := d + devices; k < len(stages); k += devices {
				other := cost.Stages[k].Memory[g]
				u.States += other.States
				u.Working = max(u.Working, other.Working)
			}
			u.Activations = mostHeld(order, all, g)
			for k := d; k < len(stages); k += devices {
				cost.Stages[k].Memory[g] = u
			}
		}
	}
	return cost, nil
}

// mostHeld is the largest sum of what micro-batches hold on a device of a group while it goes through its passes.
func mostHeld(order []pipeline.Operation, all []held, g int) float64 {
	split := false
	for _, op := range order {
		split = split || op.Weights
	}
	now, most := 0.0, 0.0
	for _, op := range order {
		h := &all[op.Stage]
		switch {
		case op.Weights:
			now -= h.whole[g]
		case !op.Backward:
			now += h.kept[g]
		case split:
			now += h.whole[g] - h.kept[g]
		default:
			now -= h.kept[g]
		}
		most = max(most, now)
	}
	return most
}
