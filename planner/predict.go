package planner

import (
	"errors"
	"fmt"
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/pipeline"
)

// Predict prices any plan for the job with the cost model of the search, and simulates its schedule. Errors wrap ErrPlan if the
// plan is not for this job, and ErrInfeasible if it does not fit into memory; then the prediction is returned as well.
func (j *Job) Predict(p *Plan) (*Prediction, error) {
	cost, err := j.price(p)
	if err != nil {
		return nil, err
	}
	result := &Prediction{Seconds: cost.Seconds, Stages: cost.Stages, Overlap: OverlapOn, Tied: j.model.Tied(), Sequence: j.model.Choices().Sequence && p.divides(), Mixture: j.model.Mixture()}
	if !slices.ContainsFunc(p.Stages, func(s Stage) bool {
		return slices.ContainsFunc(s.Strategies, func(y Strategy) bool { return j.model.Hides(len(p.Stages), y.Sharding) })
	}) {
		result.Overlap = overlapOff
	}
	switch j.model.Choices().States {
	case costmodel.Mixed:
		result.Precision = PrecisionMixed
	case costmodel.BF16:
		result.Precision = PrecisionBF16
	case costmodel.Full32:
		result.Precision = precisionFull
	}
	if err := simulate(p, result, cost); err != nil {
		return nil, err
	}
	for i, s := range result.Stages {
		for _, u := range s.Memory {
			if u.Peak() > u.Limit {
				return result, fmt.Errorf("%w: stages[%d] needs %s of each %s, its limit is %s", ErrInfeasible, i, costmodel.Bytes(u.Peak()), u.Device, costmodel.Bytes(u.Limit))
			}
		}
	}
	return result, nil
}

// Timeline simulates an iteration of a plan, even if the plan does not fit into memory. Errors wrap ErrPlan if the plan is not
// for this job, and pipeline.ErrPipeline if it has too many micro-batches to simulate.
func (j *Job) Timeline(p *Plan) (*pipeline.Timeline, error) {
	cost, err := j.price(p)
	if err != nil {
		return nil, err
	}
	if cost.Orders == nil {
		if cost.Orders, err = pipeline.Orders(pipeline.OneForwardOneBackward, len(p.Stages), 1, p.MicroBatches()); err != nil {
			return nil, err
		}
	}
	ops, err := cost.Simulate()
	if err != nil {
		return nil, err
	}
	endings := make([]pipeline.Ending, p.Pipeline())
	for k, s := range cost.Stages {
		e := &endings[k%len(endings)]
		e.Synchronise += s.Sync
		e.Optimize += s.Update
	}
	t := pipeline.NewTimeline(ops, endings)
	t.Model = p.Model
	for i := range p.Pipeline() {
		name := p.Stages[i].layersText()
		for k := i + p.Pipeline(); k < len(p.Stages); k += p.Pipeline() {
			name += ", " + p.Stages[k].layersText()
		}
		t.Stages = append(t.Stages, name+" on "+p.Stages[i].devicesText())
	}
	return t, nil
}

// price is the cost of a plan by formula.
func (j *Job) price(p *Plan) (*costmodel.Cost, error) {
	if err := p.Validate(len(j.Profile.Layers)); err != nil {
		return nil, err
	}
	if why := j.model.WhyNot(p.spread()); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrPlan, why)
	}
	j = j.in(p.spread())
	var stages []costmodel.Stage
	for i := range p.Stages {
		s, err := j.stage(&p.Stages[i], fmt.Sprintf("stages[%d]", i))
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	cost, err := j.model.PriceScheduled(p.GlobalBatch, p.MicroBatch, stages, p.passes())
	if e := (*costmodel.UnpricedError)(nil); errors.As(err, &e) {
		i := slices.IndexFunc(p.Stages[e.Stage].Strategies, func(y Strategy) bool { return e.Layer < y.To })
		return nil, fmt.Errorf("%w: stages[%d].strategies[%d]: %s", ErrPlan, e.Stage, i, e.Reason)
	}
	return cost, err
}

// stage turns a stage of a plan into a stage configuration on the job's cluster.
func (j *Job) stage(s *Stage, at string) (costmodel.Stage, error) {
	c := costmodel.Stage{From: s.From, To: s.To}
	if len(s.Groups) > costmodel.MaxGroups {
		return c, fmt.Errorf("%w: %s.groups: has %d; the cost model knows at most %d", ErrPlan, at, len(s.Groups), costmodel.MaxGroups)
	}
	for i, group := range s.Groups {
		g, err := j.group(group, s.Strategies, fmt.Sprintf("%s.groups[%d]", at, i))
		if err != nil {
			return c, err
		}
		c.Groups = append(c.Groups, g)
	}
	for i, y := range s.Strategies {
		if y.Selective && !j.model.Selects() {
			return c, fmt.Errorf("%w: %s.strategies[%d].selective: the layer profile says of no layer what that saves (selective_seconds, selective_bytes)", ErrPlan, at, i)
		}
		c.Strategies = append(c.Strategies, slices.Repeat([]costmodel.Strategy{y.of()}, y.To-y.From)...)
	}
	return c, nil
}

func (j *Job) group(group Group, strategies []Strategy, at string) (costmodel.Group, error) {
	var g costmodel.Group
	class := slices.Index(j.devices, group.Device)
	if class < 0 {
		return g, fmt.Errorf("%w: %s.device: is %s; the cluster has %v", ErrPlan, at, group.Device, j.devices)
	}
	k, context := j.topology.Classes[class], j.model.Spread().Context
	if group.First+group.Count > k.Count {
		return g, fmt.Errorf("%w: %s: ends with device %d; the cluster has %d %s", ErrPlan, at, group.First+group.Count-1, k.Count, k.Device)
	}
	if k.PerMachine%context != 0 {
		return g, fmt.Errorf("%w: %s.device: is %s, of which a machine has %d; context %d must divide that", ErrPlan, at, k.Device, k.PerMachine, context)
	}
	if err := within(k, group, group.Tensor, context, at+".tensor:"); err != nil {
		return g, err
	}
	if wide := j.model.Wides(class); group.Tensor*context > k.PerMachine && !slices.Contains(wide, group.Tensor) {
		return g, fmt.Errorf("%w: %s.tensor: is %d, more than the %d devices of a machine; over several machines the layer profile has %v", ErrPlan, at, group.Tensor, k.PerMachine, wide)
	}
	for i, y := range strategies {
		if y.Tensor == 0 {
			continue
		}
		at := fmt.Sprintf("%s of strategies[%d]: tensor", at, i)
		if units := k.PerMachine / context; units%y.Tensor != 0 && (y.Tensor%units != 0 || context > 1) {
			or := ", or be a multiple of them"
			if context > 1 {
				or = ""
			}
			return g, fmt.Errorf("%w: %s is %d%s; must divide the %d devices of a machine%s", ErrPlan, at, y.Tensor, times(y.Tensor, context), k.PerMachine, or)
		}
		if err := within(k, group, y.Tensor, context, at); err != nil {
			return g, err
		}
	}
	return costmodel.Group{Class: class, First: group.First / context, Replicas: group.Count / context / group.Tensor, Tensor: group.Tensor, Shares: group.MicroBatches}, nil
}

// within reports a replica of a group that neither lies within a machine nor takes whole machines.
func within(k cluster.Class, group Group, tensor, context int, at string) error {
	devices := tensor * context
	if devices > k.PerMachine && context == 1 && devices%k.PerMachine == 0 && group.First%k.PerMachine == 0 {
		return nil
	}
	for first := group.First; first < group.First+group.Count; first += devices {
		if first/k.PerMachine != (first+devices-1)/k.PerMachine {
			return fmt.Errorf("%w: %s is %d%s, and the replica from device %d on does not lie within a machine of %d, nor take whole machines", ErrPlan, at, tensor, times(tensor, context), first, k.PerMachine)
		}
	}
	return nil
}

// divides says whether some layer has a tensor degree above 1.
func (p *Plan) divides() bool {
	return slices.ContainsFunc(p.Stages, func(s Stage) bool {
		return slices.ContainsFunc(s.Groups, func(g Group) bool { return g.Tensor > 1 }) || slices.ContainsFunc(s.Strategies, func(y Strategy) bool { return y.Tensor > 1 })
	})
}

// simulate sets the simulated length of the iteration and the idle share. A plan with too many operations to simulate keeps the
// length by formula. Schedules other than 1F1B have no formula; their Seconds are simulated as well.
func simulate(p *Plan, result *Prediction, cost *costmodel.Cost) (err error) {
	switch {
	case cost.Orders != nil:
		ops, err := cost.Simulate()
		if err != nil {
			return err
		}
		for d, all := range ops {
			end := all[len(all)-1].End
			sync, update := 0.0, 0.0
			for k := d; k < len(result.Stages); k += len(ops) {
				sync += result.Stages[k].Sync
				update += result.Stages[k].Update
			}
			result.Simulated = max(result.Simulated, end+sync+update)
		}
		result.Seconds = result.Simulated
	case len(cost.Timings) > pipeline.MaxOperations/p.MicroBatches():
		result.Simulated = result.Seconds
	default:
		if result.Simulated, err = cost.Simulated(p.MicroBatches()); err != nil {
			return err
		}
	}
	setIdle(p, result)
	return nil
}

// setIdle sets the share of the iteration in which devices do not compute.
func setIdle(p *Plan, result *Prediction) {
	busy, devices := 0.0, 0.0
	for i, s := range result.Stages {
		n := 0.0
		for _, g := range p.Stages[i].Groups {
			n += float64(g.Count)
		}
		if i < p.Pipeline() {
			devices += n
		}
		busy += n * (float64(p.MicroBatches())*s.Step() + s.Sync + s.Update)
	}
	if result.Simulated > 0 { // layers may take no time
		result.Idle = max(0, 1-busy/(devices*result.Simulated))
	}
}
