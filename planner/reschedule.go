package planner

import (
	"context"
	"errors"
	"slices"
)

// maxChunks is the largest number of stages per device that the search tries.
const maxChunks = 8

// reschedule returns variants of plans under other schedules: the same stages with ZB-H1 and H-1F1B, and interleaved plans that
// divide each stage into 2 to maxChunks chunks. Transfers overlap with computing, as in PyTorch and Megatron-LM. It leaves out
// variants that do not fit into memory or that the schedule does not allow.
func (j *Job) reschedule(ctx context.Context, plans []*Plan, schedules []string) ([]*Plan, error) {
	var all []*Plan
	for _, p := range plans {
		var variants []*Plan
		if slices.Contains(schedules, ScheduleAhead) && len(p.Stages) > 1 {
			q, err := j.ahead(ctx, p)
			if err != nil {
				return nil, err
			}
			if q != nil {
				all = append(all, q)
			}
		}
		if slices.Contains(schedules, ScheduleZeroBubble) && len(p.Stages) > 1 && p.InRounds() {
			q := *p
			q.Schedule, q.Transfers = ScheduleZeroBubble, TransfersOverlap
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
			if fits, err := j.predicted(q); err != nil {
				return nil, err
			} else if fits {
				all = append(all, q)
			}
		}
	}
	return all, nil
}

// ahead is the plan under H-1F1B. It starts with the warm-up of Cost.Ahead; then stages run one forward pass more ahead as long as
// that is quicker and fits into memory. nil: the plan does not fit.
func (j *Job) ahead(ctx context.Context, p *Plan) (*Plan, error) {
	m := p.MicroBatches()
	cost, err := j.price(p)
	if err != nil {
		return nil, err
	}
	warmup, _ := cost.Ahead(m)
	best, err := j.sendAhead(p, warmup)
	for i := len(warmup) - 1; err == nil && best != nil && i >= 0 && ctx.Err() == nil; i-- {
		more := slices.Clone(best.Warmup)
		more[i]++
		for k := range i {
			more[k] = max(more[k], more[i])
		}
		if more[i] > m {
			continue
		}
		var next *Plan
		if next, err = j.sendAhead(p, more); next != nil && next.perSample() < best.perSample()*(1-1e-9) {
			best, i = next, len(warmup) // start again from the last stage
		}
	}
	return best, err
}

// sendAhead is the plan by H-1F1B with this warm-up; nil: it does not fit, or has too many passes.
func (j *Job) sendAhead(p *Plan, warmup []int) (*Plan, error) {
	q := *p
	q.Schedule, q.Warmup = ScheduleAhead, warmup
	if fits, err := j.predicted(&q); !fits {
		return nil, err
	}
	return &q, nil
}

// predicted predicts a plan under another schedule; false: it does not fit memory, or the schedule does not allow it.
func (j *Job) predicted(q *Plan) (fits bool, err error) {
	q.Predicted, err = j.Predict(q)
	if errors.Is(err, ErrInfeasible) || errors.Is(err, ErrPlan) {
		return false, nil
	}
	return err == nil, err
}

// interleave divides the layers of each stage into chunks, as evenly as possible; nil: a stage has too few layers.
func (p *Plan) interleave(chunks int) *Plan {
	q := *p
	q.Schedule, q.Chunks, q.Transfers, q.Stages, q.Predicted = ScheduleInterleaved, chunks, TransfersOverlap, nil, nil
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

// perLayer are the strategies of a stage, one for each layer.
func (s *Stage) perLayer() []Strategy {
	var all []Strategy
	for _, y := range s.Strategies {
		all = append(all, slices.Repeat([]Strategy{y}, y.To-y.From)...)
	}
	return all
}

// appendStrategy adds the strategy of the next layer. If it equals the last one, that run becomes longer.
func appendStrategy(all []Strategy, y Strategy) []Strategy {
	if n := len(all); n > 0 {
		last := &all[n-1]
		if last.of() == y.of() {
			last.To = y.To
			return all
		}
	}
	return append(all, y)
}
