package planner

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// ErrTrainer is wrapped by errors about trainers that a search does not know. It is bad input.
var ErrTrainer = badinput.New("planner: unknown trainer")

// For is the job as a trainer runs its plans, by name; "": any trainer. DeepSpeed does not hide all that the others do.
func (j *Job) For(trainer string) (*Job, error) {
	switch trainer {
	case "", "megatron", "torch":
		return j, nil
	case "deepspeed":
		k := *j
		k.model = j.model.Late()
		return &k, nil
	}
	return nil, fmt.Errorf("%w: %.40q; want megatron, deepspeed or torch", ErrTrainer, trainer)
}

// restrictions are what a trainer can run, as package planner/export writes it, one or more searches' worth.
//
//   - Megatron-LM and DeepSpeed have one tensor degree, one number of replicas with equal shares, and one kind of sharding;
//     sharding of gradients, or of everything, goes with no pipeline, and layers are recomputed all or not at all, by Megatron-LM also all in part. It
//     can also recompute the first few layers of every stage, which is not searched.
//   - DeepSpeed without a pipeline leaves recomputation to the model, layer by layer.
//   - What is written for PyTorch takes every plan.
func (j *Job) restrictions(trainer string) ([]costmodel.Restriction, error) {
	if trainer == "" || trainer == "torch" {
		return []costmodel.Restriction{{}}, nil
	}
	shardings := j.options.Shardings
	if len(shardings) == 0 {
		shardings = costmodel.Shardings()
	}
	checkpoints, free := j.checkpoints(trainer)
	var all []costmodel.Restriction
	for _, t := range j.model.Tensors() {
		for _, s := range shardings {
			r := costmodel.Restriction{Tensor: t, Sharding: s, Even: true}
			if s == Full || s == Gradients {
				if r.MostStages = 1; j.options.LeastStages > 1 {
					continue
				}
			}
			if trainer == "deepspeed" && free && j.options.LeastStages <= 1 {
				one := r
				one.MostStages = 1
				all = append(all, one)
			}
			for _, r.Checkpoint = range checkpoints {
				if trainer == "deepspeed" && r.Checkpoint == "selective" { // by the model, which a pipeline cannot tell
					if r.MostStages = 1; j.options.LeastStages > 1 {
						continue
					}
				}
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 && trainer == "deepspeed" && checkpoints[0] == "selective" {
		return nil, fmt.Errorf("%w: a pipeline of deepspeed recomputes whole layers, but checkpoint selective and at least %d stages are asked for", ErrInfeasible, j.options.LeastStages)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s shards gradients and weights only in one stage, but sharding %v and at least %d stages are asked for", ErrInfeasible, trainer, shardings, j.options.LeastStages)
	}
	return all, nil
}

// checkpoints are the ways in which a trainer recomputes all layers, and whether the options leave the choice.
func (j *Job) checkpoints(trainer string) (all []string, free bool) {
	if c := j.options.Checkpoint; c != "" && c != "auto" {
		return []string{c}, false
	}
	if trainer == "megatron" && j.model.Selects() {
		return []string{"never", "always", "selective"}, true
	}
	return []string{"never", "always"}, true
}

// conditions are the preset conditions of a model under restrictions.
func conditions(m *costmodel.Model, within []costmodel.Restriction) []*costmodel.Condition {
	var all []*costmodel.Condition
	for _, r := range within {
		all = append(all, m.Restricted(r).Conditions()...)
	}
	return all
}
