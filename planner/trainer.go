package planner

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// ErrTrainer is wrapped by errors about trainers that a search does not know. It is bad input.
var ErrTrainer = badinput.New("planner: unknown trainer")

// restrictions are what a trainer can run, as package planner/export writes it, one or more searches' worth.
//
//   - Megatron-LM and DeepSpeed have one tensor degree, one number of replicas with equal shares, and one kind of sharding;
//     sharding of gradients, or of everything, goes with no pipeline, and layers are recomputed all or not at all. Megatron-LM can also recompute the first
//     few layers of every stage, which is not searched.
//   - DeepSpeed without a pipeline leaves recomputation to the model, layer by layer.
//   - What is written for PyTorch takes every plan.
func (j *Job) restrictions(trainer string) ([]costmodel.Restriction, error) {
	switch trainer {
	case "", "torch":
		return []costmodel.Restriction{{}}, nil
	case "megatron", "deepspeed":
	default:
		return nil, fmt.Errorf("%w: %.40q; want megatron, deepspeed or torch", ErrTrainer, trainer)
	}
	shardings := j.options.Shardings
	if len(shardings) == 0 {
		shardings = costmodel.Shardings()
	}
	checkpoints := []string{"never", "always"}
	if c := j.options.Checkpoint; c == "never" || c == "always" {
		checkpoints = []string{c}
	}
	var all []costmodel.Restriction
	for _, t := range j.model.Tensors() {
		for _, s := range shardings {
			r := costmodel.Restriction{Tensor: t, Sharding: s, Even: true}
			if s == Full || s == Gradients {
				if r.MostStages = 1; j.options.LeastStages > 1 {
					continue
				}
			}
			if trainer == "deepspeed" && len(checkpoints) > 1 && j.options.LeastStages <= 1 {
				free := r
				free.MostStages = 1
				all = append(all, free)
			}
			for _, r.Checkpoint = range checkpoints {
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s shards gradients and weights only in one stage, but sharding %v and at least %d stages are asked for", ErrInfeasible, trainer, shardings, j.options.LeastStages)
	}
	return all, nil
}

// conditions are the preset conditions of a model under restrictions.
func conditions(m *costmodel.Model, within []costmodel.Restriction) []*costmodel.Condition {
	var all []*costmodel.Condition
	for _, r := range within {
		all = append(all, m.Restricted(r).Conditions()...)
	}
	return all
}
