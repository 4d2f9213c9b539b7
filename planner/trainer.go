package planner

import (
	"fmt"
	"slices"

	"evenkeel/internal/badinput"
	"evenkeel/planner/costmodel"
)

// ErrTrainer is wrapped by errors about trainers that a search does not know. It is bad input.
var ErrTrainer = badinput.New("planner: unknown trainer")

// For is the job as a trainer runs its plans; "": any trainer. Megatron-LM is sequence-parallel, unless the options say otherwise:
// without, every tensor rank sends whole activations on. DeepSpeed overlaps less communication than the others.
func (j *Job) For(trainer string) (*Job, error) {
	switch trainer {
	case "", "torch":
		return j, nil
	case "megatron":
		if j.options.Unsequenced {
			return j, nil
		}
		k := *j
		k.model, k.options.Sequence = j.model.Sequential(), true
		return &k, nil
	case "deepspeed":
		k := *j
		k.model = j.model.Late().Restricted(costmodel.Restriction{Alone: true, Undivided: true})
		return &k, nil
	}
	return nil, fmt.Errorf("%w: %.40q; want megatron, deepspeed or torch", ErrTrainer, trainer)
}

// restrictions describe what a trainer can run with the files of package planner/export. Each one is searched by itself.
//
//   - Megatron-LM and DeepSpeed have one tensor degree, one number of replicas with equal shares, and one kind of sharding.
//     Sharding of gradients or weights excludes a pipeline. They recompute all layers or none; Megatron-LM can also recompute
//     only the core of attention of all layers. (It can recompute the first layers of every stage, too, which is not searched.)
//   - Megatron-LM has context and expert parallelism; with a tensor degree, layers of experts, divided or not, need sequence
//     parallelism (MoELayer.forward). The configuration of DeepSpeed has none of the three.
//   - DeepSpeed without ZeRO sums gradients of 16-bit weights in 16 bits (_do_optimizer_sanity_check).
//   - DeepSpeed without a pipeline leaves recomputation of each layer to the model.
//   - The export for PyTorch takes every plan.
func (j *Job) restrictions(trainer string) ([]costmodel.Restriction, error) {
	if trainer == "" || trainer == "torch" {
		return []costmodel.Restriction{{}}, nil
	}
	if trainer == "deepspeed" && (j.options.Sequence || without(j.options.Contexts) || without(j.options.Experts)) {
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
			if trainer == "megatron" && t > 1 && !j.options.Sequence && j.model.Mixture() {
				continue
			}
			if trainer == "deepspeed" && s == Replicated && j.model.Choices().States == costmodel.Mixed {
				continue
			}
			r := costmodel.Restriction{Tensor: t, Sharding: s, Even: true}
			all = append(all, j.recomputing(trainer, r, checkpoints, free)...)
		}
	}
	if len(all) == 0 {
		return nil, j.unrestricted(trainer, shardings, checkpoints)
	}
	return all, nil
}

// recomputing are the restriction with each way in which the trainer can recompute layers.
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
		if trainer == "deepspeed" && r.Checkpoint == "selective" { // done by the model, not in a pipeline
			if r.MostStages = 1; several {
				continue
			}
		}
		all = append(all, r)
	}
	return all
}

// without says whether degrees are given and 1 is not among them.
func without(degrees []int) bool { return len(degrees) > 0 && !slices.Contains(degrees, 1) }

// unrestricted says why the trainer can run no plan within the options.
func (j *Job) unrestricted(trainer string, shardings []Sharding, checkpoints []string) error {
	least := j.options.LeastStages
	switch {
	case trainer == "deepspeed" && slices.Equal(shardings, []Sharding{Replicated}):
		return fmt.Errorf("%w: deepspeed sums gradients in 16 bits without ZeRO, but sharding none and mixed precision are asked for; allow another sharding, or bf16", ErrInfeasible)
	case trainer == "deepspeed" && checkpoints[0] == "selective":
		return fmt.Errorf("%w: a pipeline of deepspeed recomputes whole layers, but checkpoint selective and at least %d stages are asked for", ErrInfeasible, least)
	case trainer == "megatron" && j.model.Mixture() && !j.options.Sequence && !slices.Contains(j.model.Tensors(), 1):
		return fmt.Errorf("%w: megatron trains experts at a tensor degree only with sequence parallelism, which is not asked for", ErrInfeasible)
	}
	return fmt.Errorf("%w: %s shards gradients and weights only in one stage, but sharding %v and at least %d stages are asked for", ErrInfeasible, trainer, shardings, least)
}

// checkpoints are the ways in which the trainer can recompute all layers; free: the options leave the choice open.
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
