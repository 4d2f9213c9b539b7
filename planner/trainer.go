package planner

import (
	"fmt"
	"slices"

	"evenkeel/internal/badinput"
	"evenkeel/planner/costmodel"
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
		k.model = j.model.Late().Restricted(costmodel.Restriction{Alone: true, Undivided: true})
		return &k, nil
	}
	return nil, fmt.Errorf("%w: %.40q; want megatron, deepspeed or torch", ErrTrainer, trainer)
}

// restrictions are what a trainer can run, as package planner/export writes it, one or more searches' worth.
//
//   - Megatron-LM and DeepSpeed have one tensor degree, one number of replicas with equal shares, and one kind of sharding;
//     sharding of gradients, or of everything, goes with no pipeline, and layers are recomputed all or not at all, by Megatron-LM also all in part. It
//     can also recompute the first few layers of every stage, which is not searched.
//   - Megatron-LM has context and expert parallelism; experts at a tensor degree only sequence-parallel (ModelParallelConfig). DeepSpeed
//     has neither in its configuration, nor sequence parallelism.
//   - DeepSpeed without a pipeline leaves recomputation to the model, layer by layer.
//   - What is written for PyTorch takes every plan.
func (j *Job) restrictions(trainer string) ([]costmodel.Restriction, error) {
	if trainer == "" || trainer == "torch" {
		return []costmodel.Restriction{{}}, nil
	}
	if trainer == "deepspeed" && j.spreads() {
		return nil, fmt.Errorf("%w: the configuration of deepspeed has no sequence, context or expert parallelism, but one of them is asked for", ErrInfeasible)
	}
	shardings := j.options.Shardings
	if len(shardings) == 0 {
		shardings = costmodel.Shardings()
	}
	checkpoints, free := j.checkpoints(trainer)
	var all []costmodel.Restriction
	for _, t := range j.model.Tensors() {
		for _, s := range shardings {
			r := costmodel.Restriction{Tensor: t, Sharding: s, Even: true, Undivided: trainer == "megatron" && t > 1 && !j.options.Sequence}
			if r.Undivided && without(j.options.Experts) {
				continue
			}
			all = append(all, j.recomputing(trainer, r, checkpoints, free)...)
		}
	}
	if len(all) == 0 {
		return nil, j.unrestricted(trainer, shardings, checkpoints)
	}
	return all, nil
}

// recomputing are a restriction's with each way to recompute layers that a trainer has with it.
func (j *Job) recomputing(trainer string, r costmodel.Restriction, checkpoints []string, free bool) (all []costmodel.Restriction) {
	several := j.options.LeastStages > 1
	if r.Sharding == Full || r.Sharding == Gradients {
		if r.MostStages = 1; several {
			return nil
		}
	}
	if trainer == "deepspeed" && free && !several {
		one := r
		one.MostStages = 1
		all = append(all, one)
	}
	for _, r.Checkpoint = range checkpoints {
		if trainer == "deepspeed" && r.Checkpoint == "selective" { // by the model, which a pipeline cannot tell
			if r.MostStages = 1; several {
				continue
			}
		}
		all = append(all, r)
	}
	return all
}

// spreads says whether the options ask for sequence, context or expert parallelism.
func (j *Job) spreads() bool {
	return j.options.Sequence || without(j.options.Contexts) || without(j.options.Experts)
}

// without says whether degrees are asked for, and 1 is not one of them.
func without(degrees []int) bool { return len(degrees) > 0 && !slices.Contains(degrees, 1) }

// unrestricted says why a trainer can run no plan within the options.
func (j *Job) unrestricted(trainer string, shardings []Sharding, checkpoints []string) error {
	least := j.options.LeastStages
	switch {
	case trainer == "deepspeed" && checkpoints[0] == "selective":
		return fmt.Errorf("%w: a pipeline of deepspeed recomputes whole layers, but checkpoint selective and at least %d stages are asked for", ErrInfeasible, least)
	case without(j.options.Experts) && !j.options.Sequence:
		return fmt.Errorf("%w: megatron divides experts at a tensor degree only with sequence parallelism, which is not asked for", ErrInfeasible)
	}
	return fmt.Errorf("%w: %s shards gradients and weights only in one stage, but sharding %v and at least %d stages are asked for", ErrInfeasible, trainer, shardings, least)
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
