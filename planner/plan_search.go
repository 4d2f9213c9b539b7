package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Result is what a search came to.
type Result struct {
	Plan       *Plan
	Others     []*Plan // next best, other numbers of stages or conditions; cheapest first
	Bound      float64 // seconds per sample: no plan takes less by the cost model
	Best       float64 // seconds per sample of the cheapest plan by the cost model
	Conditions int
	States     int
}

// Gap is how far, at most, the plan is above the least cost; 0: none is cheaper. The plan need not be the cheapest by
// the cost model, as the simulation chooses among the cheapest.
func (r *Result) Gap() float64 {
	return max(0, r.Plan.Predicted.Seconds/float64(r.Plan.GlobalBatch)/r.Bound-1)
}

// kept are the plans that the event simulation ranks anew, those within near of the cheapest.
const (
	kept = 24
	near = 1.05
)

// How thorough the search is: all states for up to fewLayers on up to fewDevices.
const (
	tolerance  = 1e-3
	width      = 160
	widthAlike = 4096 // where all devices are alike
	widthFew   = 320  // of several classes, with at most so many devices
	fewDevices = 256
	fewLayers  = 32
)

// Search finds the plan with the least time per sample. The cheapest plans by the cost model are simulated, operation by
// operation, and the quickest of them is the result. When ctx ends, the best plan so far is returned, with its gap.
// Errors wrap ErrInfeasible and say which limit stands in the way.
func (j *Job) Search(ctx context.Context, progress Progress) (*Result, error) {
	conditions := j.conditions()
	if len(conditions) == 0 {
		return nil, j.noCondition()
	}
	costs := make([]Costs, len(conditions))
	for i, c := range conditions {
		costs[i] = c
	}
	o := SearchOptions{Progress: progress}
	devices := sum(conditions[0].Pool())
	if small := len(j.Profile.Layers) <= fewLayers && devices <= fewDevices; !small && !j.Options.Exact {
		o.Tolerance, o.Width = tolerance, width
		switch {
		case len(j.Topology.Classes) == 1:
			o.Width = widthAlike
		case devices <= fewDevices:
			o.Width = widthFew
		}
	}
	found, err := Search(ctx, costs, o)
	if err != nil {
		if ctx.Err() == nil {
			err = j.explain(ctx, err)
		}
		return nil, err
	}
	r := &Result{Bound: found.Bound, Best: found.Best[0].Total, Conditions: len(conditions), States: found.States}
	var plans []*Plan
	for _, k := range found.Best[:min(kept, len(found.Best))] {
		if k.Total > near*r.Best {
			break
		}
		p := conditions[k.Condition].plan(k)
		if p.Predicted, err = j.Predict(p); err != nil {
			return nil, fmt.Errorf("planner: a plan that was found does not hold: %w", err)
		}
		plans = append(plans, p)
	}
	slices.SortStableFunc(plans, func(a, b *Plan) int {
		return cmp.Compare(a.Predicted.Simulated/float64(a.GlobalBatch), b.Predicted.Simulated/float64(b.GlobalBatch))
	})
	r.Plan, r.Others = plans[0], plans[1:]
	return r, nil
}

// noCondition says why there is no way to begin with.
func (j *Job) noCondition() error {
	most := 0
	for c := range j.Topology.Classes {
		for _, t := range j.tensors[c] {
			for i := range j.Profile.Layers {
				runs := j.Profile.Layers[i].times(j.devices[c], t)
				most = max(most, runs[len(runs)-1].MicroBatch)
			}
		}
	}
	return fmt.Errorf("%w: replicas %v times micro-batch %v must divide the global batch %v, and the largest micro-batch in the profile is %d; "+
		"change one of them, or profile other micro-batches", ErrInfeasible, orAll(j.Options.Replicas), orAll(j.Options.MicroBatches), j.Options.GlobalBatches, most)
}

func orAll(list []int) any {
	if list == nil {
		return "(any)"
	}
	return list
}

// explain finds what would make a plan feasible, by trying: more memory.
func (j *Job) explain(ctx context.Context, err error) error {
	for _, more := range []float64{1.25, 1.5, 2, 3, 4, 8, 16, 64} {
		wide := *j
		wide.Topology = j.Topology.WithMemory(more)
		var costs []Costs
		for _, c := range wide.conditions() {
			costs = append(costs, c)
		}
		// Any plan will do.
		if _, tried := Search(ctx, costs[:min(len(costs), 64)], SearchOptions{Width: beam}); tried == nil {
			return fmt.Errorf("%w: memory is too small; with %g times as much on every device there is one. Allow checkpointing and full sharding, lower the reserve, add devices or profile higher tensor degrees", err, more)
		}
	}
	return fmt.Errorf("%w: not even 64 times the memory helps; the limits on stages, replicas or micro-batches leave no way", err)
}
