package costmodel

import "evenkeel/planner/pipeline"

// held is the bytes that a micro-batch holds on a device of each group: kept until its backward pass; whole from there to a
// separate pass for the gradients of the weights, as recomputed activations are kept for that pass.
type held struct{ kept, whole [MaxGroups]float64 }

// Passes says in which order stages run their passes.
type Passes struct {
	Schedule pipeline.Schedule
	Chunks   int   // stages of each device, at least 1: stage k lies on the devices of stage k mod len(stages)/chunks
	Warmup   []int // of pipeline.SentAhead: forward passes that each stage begins with
	Overlap  bool  // transfers overlap with computing
}

func (p *Passes) orders(stages, microBatches int) ([][]pipeline.Operation, error) {
	if p.Schedule == pipeline.SentAhead {
		return pipeline.OrdersAhead(p.Warmup, microBatches)
	}
	return pipeline.Orders(p.Schedule, stages/p.Chunks, p.Chunks, microBatches)
}

// PriceScheduled prices stages under a schedule. Memory is that of a device with all its stages. For 1F1B the result is that of
// Price; for other schedules Seconds is 0, and Orders are to be simulated. Errors are an *UnpricedError, or wrap
// pipeline.ErrPipeline.
func (m *Model) PriceScheduled(globalBatch, microBatch int, stages []Stage, passes Passes) (*Cost, error) {
	cost, all, err := m.priceStages(globalBatch, microBatch, stages, nil)
	if err != nil || passes.Schedule == pipeline.OneForwardOneBackward {
		return cost, err
	}
	if cost.Orders, err = passes.orders(len(stages), globalBatch/microBatch); err != nil {
		return nil, err
	}
	cost.Seconds, cost.Overlap = 0, passes.Overlap
	devices := len(cost.Orders)
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

// mostHeld is the most bytes that micro-batches hold at any time on a device of a group.
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

// Simulate returns the passes of each device with their times, in the order of Orders.
func (c *Cost) Simulate() ([][]pipeline.Operation, error) {
	ops, _, err := pipeline.Simulate(c.Timings, c.Orders, c.Overlap)
	return ops, err
}

// Simulated is the simulated seconds of an iteration under 1F1B. Errors wrap pipeline.ErrPipeline.
func (c *Cost) Simulated(microBatches int) (float64, error) {
	ends, err := pipeline.Ends(nil, c.Timings, microBatches)
	if err != nil {
		return 0, err
	}
	seconds := 0.0
	for i, s := range c.Stages {
		seconds = max(seconds, ends[i]+s.Sync+s.Update)
	}
	return seconds, nil
}
