package planner

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// exhaust tries every plan of a small job for one that is quicker than those given, and notes in the result whether all were tried.
func (j *Job) exhaust(ctx context.Context, plans []*Plan, r *Result) (better []*Plan, err error) {
	least := math.Inf(1) // seconds of a sample
	for _, p := range plans {
		least = min(least, p.perSample())
	}
	r.Exhausted = true
	work := costmodel.ExhaustWork // of all batches together
	for _, batch := range j.options.GlobalBatches {
		x := j.model.Exhaust(ctx, batch, least*float64(batch)*(1-1e-9), &work)
		r.Exhausted = r.Exhausted && x.Complete
		if x.Stages == nil {
			continue
		}
		p := j.planOf(x.Spread, batch, x.MicroBatch, x.Stages)
		p.Predicted, err = j.Predict(p)
		if errors.Is(err, ErrInfeasible) { // sums of memory in another order, to rounding
			r.Exhausted = false
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("planner: a plan of all that were tried does not hold: %w", err)
		}
		least = p.perSample()
		better = append(better, p)
	}
	return better, nil
}

// only is the result where the dynamic programming has no plan and a small job has some all the same; nil: it has none.
func (j *Job) only(ctx context.Context, options SearchOptions, among []string, err error) (*Result, error) {
	if !errors.Is(err, ErrInfeasible) || !j.refines(options) {
		return nil, nil
	}
	r := &Result{Refined: true}
	plans, err := j.exhaust(ctx, nil, r)
	if err != nil || len(plans) == 0 {
		return nil, err
	}
	if plans, err = j.bySchedules(ctx, plans, nil, among); err != nil {
		return nil, err
	}
	r.rank(plans)
	r.Best = r.Plan.Predicted.Seconds / float64(r.Plan.GlobalBatch)
	r.Bound = r.Best // the dynamic programming has none
	j.limit(ctx, r, among, options)
	return r, nil
}
