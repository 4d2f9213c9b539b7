package costmodel

import (
	"fmt"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/pipeline"
	"github.com/evenkeel/evenkeel/planner/search"
)

// Stages are the stage configurations of a candidate under this condition, first to last.
func (c *Condition) Stages(k search.Candidate) (stages []Stage) {
	first := c.Pool() // of the devices in use
	for _, choice := range slices.Backward(k.Choices) {
		f := &c.configurations[choice.Shape]
		stage := Stage{From: choice.From, To: choice.To}
		for _, g := range f.groups {
			first[g.Class] -= g.Devices()
			g.First = first[g.Class]
			stage.Groups = append(stage.Groups, g)
		}
		for _, number := range c.strategiesOf(choice) {
			stage.Strategies = append(stage.Strategies, f.strategies[number])
		}
		stage.useGroupTensor(c.MicroBatch)
		stages = append(stages, stage)
	}
	slices.Reverse(stages)
	return stages
}

// strategiesOf are the strategies of a stage's layers.
func (c *Condition) strategiesOf(s search.Choice) []int32 {
	all := make([]int32, s.To-s.From)
	if s.Point.Key >= 0 {
		for i, label := 0, s.Point.Key; label >= 0; i++ {
			all[i] = c.labels[label].strategy
			label = c.labels[label].next
		}
		return all
	}
	left := slices.Clone(c.packings[-s.Point.Key-1])
	for i := range all {
		r := slices.IndexFunc(left, func(r packedRun) bool { return r.kind == c.kindOf[s.From+i] && r.count > 0 })
		all[i] = left[r].strategy
		left[r].count--
	}
	return all
}

// Cost is the cost of a pipeline.
type Cost struct {
	Seconds float64 // of an iteration: the sum, (micro-batches - 1) times the largest step, the largest per-iteration cost
	Stages  []StageCost
	Timings []pipeline.Timing // of each stage
	// Orders are the passes of each device under another schedule than 1F1B, for which Seconds is 0.
	Orders [][]pipeline.Operation
}

// UnpricedError reports a layer whose cost under its strategy is unknown.
type UnpricedError struct {
	Stage, Layer int
	Reason       string
}

// Error implements error.
func (e *UnpricedError) Error() string {
	return fmt.Sprintf("planner: stage %d, layer %d: %s", e.Stage, e.Layer, e.Reason)
}

// Price prices stages, first to last, that train with so many samples in an iteration and in a micro-batch. The stages
// must follow each other, take devices that the cluster has, and have shares that sum to the micro-batch. The error is an
// *UnpricedError.
func (m *Model) Price(globalBatch, microBatch int, stages []Stage) (*Cost, error) {
	cost, _, err := m.priceStages(globalBatch, microBatch, stages)
	return cost, err
}

func (m *Model) priceStages(globalBatch, microBatch int, stages []Stage) (*Cost, []held, error) {
	c := &Condition{Model: m, GlobalBatch: globalBatch, MicroBatch: microBatch}
	cost := &Cost{Timings: make([]pipeline.Timing, len(stages))}
	all := make([]held, len(stages))
	var front search.Front
	received := 0.0 // seconds of the boundary before
	for i := range stages {
		s, timing, err := c.stage(&stages[i], len(stages)-i, &all[i])
		if err != nil {
			err.Stage = i
			return nil, nil, err
		}
		if i+1 < len(stages) {
			next := &stages[i+1]
			machine := m.machine(&stages[i])
			s.Send = m.send(stages[i].Groups, next.From, classes(next), machine >= 0 && machine == m.machine(next))
			timing.SendNext = s.Send / 2
		}
		cost.Timings[i] = timing
		cost.Stages = append(cost.Stages, s)
		step := s.Step() + s.Send
		front = search.Front{Max: max(front.Max, step+received), Sum: front.Sum + step, PerIteration: max(front.PerIteration, s.Sync+s.Update), Stages: i + 1}
		received = s.Send
	}
	cost.Seconds = c.Total(front) * float64(globalBatch)
	return cost, all, nil
}

// stage prices a stage that is the behind-th from the end, and says what its micro-batches hold.
func (c *Condition) stage(s *Stage, behind int, h *held) (StageCost, pipeline.Timing, *UnpricedError) {
	var cost StageCost
	var timing pipeline.Timing
	inflight := float64(min(behind, c.microBatches()))
	var sums [MaxGroups]terms
	var convert float64
	var usage [MaxGroups]Usage
	for i, y := range s.Strategies {
		l := s.From + i
		x := c.layer(s.Groups, l, c.MicroBatch, y)
		if math.IsInf(x.step[0], 1) {
			return cost, timing, &UnpricedError{Layer: l, Reason: c.unpriced(s.Groups, l, y)}
		}
		if i > 0 {
			convert += c.convert(s.Groups, l, c.MicroBatch, s.Strategies[i-1], y)
		}
		for g := range s.Groups {
			sums[g].add(x.terms[g])
			usage[g].States += x.states[g]
			usage[g].Activations += inflight * x.active[g]
			usage[g].Working = max(usage[g].Working, x.peak[g])
			h.kept[g] += x.active[g]
			h.whole[g] += x.whole[g]
		}
	}
	slowest, last := 0, 0
	for i, g := range s.Groups {
		usage[i].Device, usage[i].Limit = c.devices[g.Class], c.limit(g.Class)
		usage[i].Working += c.reserve(g.Class)
		cost.Memory = append(cost.Memory, usage[i])
		if sums[i].step() > sums[slowest].step() {
			slowest = i
		}
		if sums[i].sync+sums[i].update > sums[last].sync+sums[last].update {
			last = i
		}
	}
	x := sums[slowest]
	cost.Forward, cost.Backward, cost.Recompute, cost.Gather, cost.Convert = x.forward, x.backward, x.recompute, x.gatherForward+x.gatherBackward, convert
	cost.Sync, cost.Update = sums[last].sync, sums[last].update
	timing = pipeline.Timing{Forward: x.forward + x.gatherForward + convert/2, Backward: x.backward + x.recompute + x.gatherBackward + convert/2, Weights: x.backward / 2}
	return cost, timing, nil
}

// unpriced says why a layer has no price under a strategy.
func (c *Condition) unpriced(groups []Group, l int, y Strategy) string {
	for i, g := range groups {
		_, tensor, share := replicas(groups, c.MicroBatch, y, i)
		if _, ok := c.curve(l, g.Class, tensor).At(share); !ok {
			return fmt.Sprintf("layer %d (%s) was not profiled on %s at tensor degree %d with a micro-batch of %d samples", l, c.profile.Layers[l].Name, c.devices[g.Class], tensor, share)
		}
	}
	return "it cannot run"
}

func classes(s *Stage) []int {
	var all []int
	for _, g := range s.Groups {
		all = append(all, g.Class)
	}
	return all
}

// machine is the number of the machine that a stage lies within, of all machines; -1: it takes several.
func (m *Model) machine(s *Stage) int {
	if len(s.Groups) != 1 {
		return -1
	}
	g := s.Groups[0]
	before := 0
	for class, k := range m.topology.Classes {
		if class == g.Class {
			if machines, _ := m.place(g); machines == 1 {
				return before + g.First/k.PerMachine
			}
			return -1
		}
		before += k.Count / k.PerMachine
	}
	return -1
}
