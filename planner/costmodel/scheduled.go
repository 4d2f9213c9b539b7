package costmodel

import (
	"math"

	"evenkeel/planner/pipeline"
)

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

// Ahead is a warm-up for H-1F1B, at least that of 1F1B, and the seconds of an iteration by it, by formula. Of stages i and j after it, i
// begins warmup[i] - warmup[j] + 1 micro-batches while one goes from i to j and back. So their pace is at least that trip divided by this
// number. The warm-up is the shortest for the pace of the busiest stage or link or, where memory is short, for one that fits.
func (c *Cost) Ahead(microBatches int) (warmup []int, seconds float64) {
	n, pace, once := len(c.Timings), math.SmallestNonzeroFloat64, 0.0 // layers may take no time
	trips, most := make([][]float64, n), make([]float64, n)
	for i, t := range c.Timings {
		pace, once = max(pace, t.Forward+t.Backward, t.SendNext), max(once, c.Stages[i].Sync+c.Stages[i].Update)
		trip := 0.0
		for _, t := range c.Timings[i:] {
			trips[i] = append(trips[i], trip+t.Forward+t.Backward)
			trip += t.Forward + t.Backward + 2*t.SendNext
		}
		most[i] = float64(microBatches)
		for _, u := range c.Stages[i].Memory {
			if held := u.Activations / float64(pipeline.InFlight(i, n, microBatches)); held > 0 {
				most[i] = min(most[i], (u.Limit-u.States-u.Working)/held*(1-1e-9))
			}
		}
	}
	warmup = make([]int, n)
	for busiest, fits := pace, false; !fits; pace *= 1.02 {
		longest := busiest
		fits = true
		for i := n - 1; i >= 0; i-- {
			own := pipeline.InFlight(i, n, microBatches)
			warmup[i] = own
			for k, trip := range trips[i][1:] {
				warmup[i] = max(warmup[i], min(microBatches, warmup[i+1+k]-1+int(math.Ceil(trip/pace))))
			}
			for k, trip := range trips[i] {
				if warmup[i] < microBatches {
					longest = max(longest, trip/float64(warmup[i]-warmup[i+k]+1))
				}
			}
			fits = fits && (warmup[i] == own || float64(warmup[i]) <= most[i])
		}
		seconds = trips[0][n-1] + float64(microBatches-1)*longest + once
	}
	return warmup, seconds
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
