package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/search"
)

// maxChunks that the search divides the stages of a device into.
const maxChunks = 8

// bySchedules adds what plans, and the cheapest of other numbers of stages, become under other schedules, and keeps those of the
// schedules that are asked for.
func (j *Job) bySchedules(ctx context.Context, plans []*Plan, among []string, conditions []*costmodel.Condition, best []search.Candidate) ([]*Plan, error) {
	if slices.Equal(among, []string{Schedule1F1B}) {
		return plans, nil
	}
	from := slices.Clone(plans)
	for _, p := range j.starts(plans, conditions, best) {
		if !slices.Contains(from, p) {
			from = append(from, p)
		}
	}
	others, err := j.reschedule(ctx, from, among)
	if err != nil {
		return nil, err
	}
	if slices.Contains(among, Schedule1F1B) {
		return append(plans, others...), nil
	}
	if len(others) == 0 {
		return nil, fmt.Errorf("%w: none of the %d quickest plans under 1f1b fits memory, has layers enough and a right number of micro-batches by %v", ErrInfeasible, len(from), among)
	}
	return others, nil
}

// reschedule returns what plans become under other schedules: the same stages by ZB-H1, and their layers dealt to the same devices in
// 2 to maxChunks rounds, interleaved. Those that do not fit memory, or that the schedule does not allow, are left out.
func (j *Job) reschedule(ctx context.Context, plans []*Plan, schedules []string) ([]*Plan, error) {
	var all []*Plan
	for _, p := range plans {
		var variants []*Plan
		if slices.Contains(schedules, ScheduleZeroBubble) && len(p.Stages) > 1 {
			q := *p
			q.Schedule = ScheduleZeroBubble
			variants = append(variants, &q)
		}
		if slices.Contains(schedules, ScheduleInterleaved) {
			for chunks := 2; chunks <= maxChunks; chunks++ {
				if q := p.interleave(chunks); q != nil {
					variants = append(variants, q)
				}
			}
		}
		for _, q := range variants {
			if ctx.Err() != nil {
				break
			}
			if q.Validate(len(j.Profile.Layers)) != nil {
				continue
			}
			var err error
			if q.Predicted, err = j.Predict(q); err == nil {
				all = append(all, q)
			} else if !errors.Is(err, ErrInfeasible) && !errors.Is(err, ErrPlan) {
				return nil, fmt.Errorf("planner: a plan under another schedule does not hold: %w", err)
			}
		}
	}
	return all, nil
}

// interleave deals the layers of each stage out in chunks, as evenly as can be; nil: a stage has too few.
func (p *Plan) interleave(chunks int) *Plan {
	q := *p
	q.Schedule, q.Chunks, q.Stages, q.Predicted = ScheduleInterleaved, chunks, nil, nil
	var strategies [][]Strategy // of each stage, layer by layer
	for i := range p.Stages {
		strategies = append(strategies, p.Stages[i].perLayer())
		if len(strategies[i]) < chunks {
			return nil
		}
	}
	layer := 0
	for c := range chunks {
		for i, s := range p.Stages {
			n := len(strategies[i])
			from, to := n*c/chunks, n*(c+1)/chunks
			stage := Stage{From: layer, To: layer + to - from, Groups: s.Groups}
			for _, y := range strategies[i][from:to] {
				y.From, y.To = layer, layer+1
				stage.Strategies = appendStrategy(stage.Strategies, y)
				layer++
			}
			q.Stages = append(q.Stages, stage)
		}
	}
	return &q
}

// perLayer are the strategies of a stage's layers, one each.
func (s *Stage) perLayer() []Strategy {
	var all []Strategy
	for _, y := range s.Strategies {
		all = append(all, slices.Repeat([]Strategy{y}, y.To-y.From)...)
	}
	return all
}

// appendStrategy adds that of the next layer, to the last run if it is the same.
func appendStrategy(all []Strategy, y Strategy) []Strategy {
	if n := len(all); n > 0 {
		last := &all[n-1]
		if (costmodel.Strategy{Tensor: last.Tensor, Sharding: last.Sharding, Checkpoint: last.Checkpoint}) == (costmodel.Strategy{Tensor: y.Tensor, Sharding: y.Sharding, Checkpoint: y.Checkpoint}) {
			last.To = y.To
			return all
		}
	}
	return append(all, y)
}
