package planner

import (
	"fmt"
	"math"
	"slices"
)

// plan writes down a candidate under a condition.
func (c *condition) plan(k Candidate) *Plan {
	p := &Plan{Version: Version, Model: c.Profile.Model, GlobalBatch: c.batch, MicroBatch: c.samples}
	first := make([]int, len(c.Topology.Classes)) // of the devices in use
	for i, class := range c.Topology.Classes {
		first[i] = class.Count
	}
	for _, s := range slices.Backward(k.Choices) {
		f := &c.forms[s.Shape]
		stage := Stage{From: s.From, To: s.To}
		for _, t := range f.groups {
			first[t.class] -= t.devices()
			stage.Groups = append(stage.Groups, Group{Devices{c.devices[t.class], first[t.class], t.devices()}, t.tensor, t.shares})
		}
		for i, number := range c.waysOf(s) {
			l, w := s.From+i, f.ways[number]
			y := Strategy{From: l, To: l + 1, Tensor: w.tensor, Sharding: w.sharding, Checkpoint: w.checkpoint}
			if n := len(stage.Strategies); n > 0 {
				if last := &stage.Strategies[n-1]; last.Tensor == y.Tensor && last.Sharding == y.Sharding && last.Checkpoint == y.Checkpoint {
					last.To = y.To
					continue
				}
			}
			stage.Strategies = append(stage.Strategies, y)
		}
		stage.settle(c.samples)
		p.Stages = append(p.Stages, stage)
	}
	slices.Reverse(p.Stages)
	for i, n := range first {
		if n > 0 {
			p.Unused = append(p.Unused, Devices{c.devices[i], 0, n})
		}
	}
	return p
}

// settle makes a tensor degree that all layers have in place of the group's own the group's.
func (s *Stage) settle(samples int) {
	t := s.Strategies[0].Tensor
	if t == 0 || slices.ContainsFunc(s.Strategies, func(y Strategy) bool { return y.Tensor != t }) {
		return
	}
	g := &s.Groups[0]
	g.Tensor, g.MicroBatches = t, even(samples, g.Count/t)
	for i := range s.Strategies {
		s.Strategies[i].Tensor = 0
	}
}

// waysOf are the ways of a stage's layers.
func (c *condition) waysOf(s Choice) []int32 {
	ways := make([]int32, s.To-s.From)
	if s.Point.Key >= 0 {
		for i, label := 0, s.Point.Key; label >= 0; i++ {
			ways[i] = c.labels[label].way
			label = c.labels[label].next
		}
		return ways
	}
	left := slices.Clone(c.chosen[-s.Point.Key-1])
	for i := range ways {
		r := slices.IndexFunc(left, func(r packedRun) bool { return r.kind == c.alike[s.From+i] && r.count > 0 })
		ways[i] = left[r].way
		left[r].count--
	}
	return ways
}

// Predict prices any plan for the job, by the same cost model that the search uses, and simulates its schedule. Errors
// wrap ErrPlan where the plan is not one for this job, and ErrInfeasible where a device's memory does not suffice; then
// the prediction is there all the same.
func (j *Job) Predict(p *Plan) (*Prediction, error) {
	result, timings, err := j.price(p)
	if err != nil {
		return nil, err
	}
	if err := simulate(p, result, timings); err != nil {
		return nil, err
	}
	for i, s := range result.Stages {
		for _, u := range s.Memory {
			if u.Peak() > u.Limit {
				return result, fmt.Errorf("%w: stages[%d] needs %s of each %s, its limit is %s", ErrInfeasible, i, gigabytes(u.Peak()), u.Device, gigabytes(u.Limit))
			}
		}
	}
	return result, nil
}

// price is the cost of a plan by formula, and the timings of its stages.
func (j *Job) price(p *Plan) (*Prediction, []Timing, error) {
	if err := p.Validate(len(j.Profile.Layers)); err != nil {
		return nil, nil, err
	}
	c := &condition{Job: j, batch: p.GlobalBatch, samples: p.MicroBatch}
	var result Prediction
	var front Front
	received := 0.0 // seconds of the boundary before
	timings := make([]Timing, len(p.Stages))
	for i := range p.Stages {
		f, err := c.form(&p.Stages[i], fmt.Sprintf("stages[%d]", i))
		if err != nil {
			return nil, nil, err
		}
		cost, timing, err := c.stage(&p.Stages[i], f, len(p.Stages)-i, fmt.Sprintf("stages[%d]", i))
		if err != nil {
			return nil, nil, err
		}
		if i+1 < len(p.Stages) {
			next := &p.Stages[i+1]
			cost.Send = c.send(f, next.From, c.classes(next), c.machine(&p.Stages[i]) >= 0 && c.machine(&p.Stages[i]) == c.machine(next))
			timing.SendNext = cost.Send / 2
		}
		timings[i] = timing
		result.Stages = append(result.Stages, cost)
		step := cost.Step() + cost.Send
		front = Front{max(front.Max, step+received), front.Sum + step, max(front.Tail, cost.Sync+cost.Update), i + 1}
		received = cost.Send
	}
	result.Seconds = c.Total(front) * float64(p.GlobalBatch)
	return &result, timings, nil
}

// simulate adds the length of the iteration and the idle share by the event simulation; of more operations than it
// takes, by the formula.
func simulate(p *Plan, result *Prediction, timings []Timing) error {
	if len(timings) > maxOperations/p.MicroBatches() {
		result.Simulated = result.Seconds
		idle(p, result)
		return nil
	}
	ops, _, err := Simulate(timings, p.MicroBatches(), OneForwardOneBackward)
	if err != nil {
		return err
	}
	for i, s := range result.Stages {
		result.Simulated = max(result.Simulated, ops[i][len(ops[i])-1].End+s.Sync+s.Update)
	}
	idle(p, result)
	return nil
}

// idle sets the share of the iteration in which devices do not compute.
func idle(p *Plan, result *Prediction) {
	busy, devices := 0.0, 0.0
	for i, s := range result.Stages {
		n := 0.0
		for _, g := range p.Stages[i].Groups {
			n += float64(g.Count)
		}
		devices += n
		busy += n * (float64(p.MicroBatches())*s.Step() + s.Sync + s.Update)
	}
	result.Idle = max(0, 1-busy/(devices*result.Simulated))
}

// form reads a stage of a plan.
func (c *condition) form(s *Stage, at string) (*form, error) {
	f := &form{}
	if len(s.Groups) > maxTeams {
		return nil, fmt.Errorf("%w: %s.groups: has %d; the cost model knows at most %d", ErrPlan, at, len(s.Groups), maxTeams)
	}
	for g, group := range s.Groups {
		class := slices.Index(c.devices, group.Device)
		at := fmt.Sprintf("%s.groups[%d]", at, g)
		if class < 0 {
			return nil, fmt.Errorf("%w: %s.device: is %s; the cluster has %v", ErrPlan, at, group.Device, c.devices)
		}
		k := c.Topology.Classes[class]
		if group.First+group.Count > k.Count {
			return nil, fmt.Errorf("%w: %s: ends with device %d; the cluster has %d %s", ErrPlan, at, group.First+group.Count-1, k.Count, k.Device)
		}
		for first := group.First; first < group.First+group.Count; first += group.Tensor {
			if first/k.PerMachine != (first+group.Tensor-1)/k.PerMachine {
				return nil, fmt.Errorf("%w: %s.tensor: is %d, and the replica from device %d on does not lie within a machine of %d", ErrPlan, at, group.Tensor, first, k.PerMachine)
			}
		}
		for i, y := range s.Strategies {
			if y.Tensor > 0 && k.PerMachine%y.Tensor != 0 {
				return nil, fmt.Errorf("%w: %s of strategies[%d]: tensor is %d; must divide the %d devices of a machine", ErrPlan, at, i, y.Tensor, k.PerMachine)
			}
		}
		f.groups = append(f.groups, team{class, group.Count / group.Tensor, group.Tensor, group.MicroBatches})
	}
	return f, nil
}

// stage prices a stage of a plan that is the behind-th from the end.
func (c *condition) stage(s *Stage, f *form, behind int, at string) (StageCost, Timing, error) {
	var cost StageCost
	var timing Timing
	inflight := float64(min(behind, c.microBatches()))
	var sums [maxTeams]terms
	var convert float64
	var usage [maxTeams]Usage
	var last way
	for i, y := range s.Strategies {
		w := way{y.Tensor, y.Sharding, y.Checkpoint}
		for l := y.From; l < y.To; l++ {
			x := c.layer(f, l, w)
			if math.IsInf(x.step[0], 1) {
				return cost, timing, fmt.Errorf("%w: %s.strategies[%d]: %s", ErrPlan, at, i, c.unpriced(f, l, w))
			}
			if l > s.From {
				convert += c.convert(f, l, last, w)
			}
			last = w
			for g := range f.groups {
				sums[g].add(x.terms[g])
				usage[g].States += x.states[g]
				usage[g].Activations += inflight * x.active[g]
				usage[g].Working = max(usage[g].Working, x.peak[g])
			}
		}
	}
	slowest, tail := 0, 0
	for g, t := range f.groups {
		usage[g].Device, usage[g].Limit = c.devices[t.class], c.limit(t.class)
		usage[g].Working += c.Options.Reserve
		cost.Memory = append(cost.Memory, usage[g])
		if sums[g].step() > sums[slowest].step() {
			slowest = g
		}
		if sums[g].sync+sums[g].update > sums[tail].sync+sums[tail].update {
			tail = g
		}
	}
	x := sums[slowest]
	cost.Forward, cost.Backward, cost.Again, cost.Gather, cost.Convert = x.forward, x.backward, x.again, x.gatherForward+x.gatherBackward, convert
	cost.Sync, cost.Update = sums[tail].sync, sums[tail].update
	timing = Timing{Forward: x.forward + x.gatherForward + convert/2, Backward: x.backward + x.again + x.gatherBackward + convert/2}
	return cost, timing, nil
}

// unpriced says why a layer has no price one way.
func (c *condition) unpriced(f *form, l int, w way) string {
	for g, t := range f.groups {
		_, tensor, share := c.replicasOf(f, w, g)
		if _, ok := c.Profile.Layers[l].times(c.devices[t.class], tensor).at(share); !ok {
			return fmt.Sprintf("layer %d (%s) was not profiled on %s at tensor degree %d with a micro-batch of %d samples", l, c.Profile.Layers[l].Name, c.devices[t.class], tensor, share)
		}
	}
	return "it cannot run"
}

func (c *condition) classes(s *Stage) []int {
	var all []int
	for _, g := range s.Groups {
		all = append(all, slices.Index(c.devices, g.Device))
	}
	return all
}

// machine is the number of the machine that a stage is within, of all machines; -1: it takes several.
func (c *condition) machine(s *Stage) int {
	if len(s.Groups) != 1 {
		return -1
	}
	g := s.Groups[0]
	before := 0
	for _, k := range c.Topology.Classes {
		if k.Device == g.Device {
			if m := g.First / k.PerMachine; m == (g.First+g.Count-1)/k.PerMachine {
				return before + m
			}
			return -1
		}
		before += k.Count / k.PerMachine
	}
	return -1
}
