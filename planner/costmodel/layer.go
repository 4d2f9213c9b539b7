package costmodel

import (
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// layerCost is the cost of a layer under a strategy, by group; its steps are +Inf where it cannot run.
type layerCost struct {
	step         [MaxGroups]float64 // seconds of a micro-batch
	perIteration [MaxGroups]float64 // seconds
	states       [MaxGroups]float64 // bytes
	active       [MaxGroups]float64 // bytes for each micro-batch in flight
	peak         [MaxGroups]float64 // bytes while it runs
	whole        [MaxGroups]float64 // bytes of a micro-batch's activations, whether recomputed or not
	terms        [MaxGroups]terms
}

// terms are the parts of a layer's times. Gathering is what a pass does not hide.
type terms struct {
	forward, backward, recompute  float64
	gatherForward, gatherBackward float64
	sync, update                  float64
}

func (t *terms) add(o terms) {
	t.forward += o.forward
	t.backward += o.backward
	t.recompute += o.recompute
	t.gatherForward += o.gatherForward
	t.gatherBackward += o.gatherBackward
	t.sync += o.sync
	t.update += o.update
}

// step is the seconds of a micro-batch.
func (t terms) step() float64 {
	return t.forward + t.backward + t.recompute + t.gatherForward + t.gatherBackward
}

// strategies are those to choose from on groups.
func (c *Condition) strategies(groups []Group) []Strategy {
	tensors := []int{0}
	if len(groups) == 1 {
		g := groups[0]
		for _, other := range c.tensors[g.Class] {
			if other != g.Tensor && g.Devices()%other == 0 && g.Devices()/other <= c.MicroBatch {
				tensors = append(tensors, other)
			}
		}
	}
	var all []Strategy
	for _, tensor := range tensors {
		for _, s := range c.options.Shardings {
			for _, y := range c.Recomputations() {
				y.Tensor, y.Sharding = tensor, s
				all = append(all, y)
			}
		}
	}
	return all
}

// price fills the costs of all kinds of layers on a configuration; false if some layer runs under no strategy.
func (c *Condition) price(f *configuration) bool {
	first := map[int32]int{}
	for l, k := range c.kindOf {
		if _, ok := first[k]; !ok {
			first[k] = l
		}
	}
	f.costs = make([][]layerCost, len(first))
	for k, l := range first {
		runs := false
		for _, y := range f.strategies {
			cost := c.layer(f.groups, l, c.MicroBatch, y)
			if n, _, _ := replicas(f.groups, c.MicroBatch, y, 0); n*c.spread.Context == 1 && y.Sharding != Replicated && slices.Contains(c.options.Shardings, Replicated) {
				cost = never // the same as not sharded
			}
			runs = runs || !math.IsInf(cost.step[0], 1)
			f.costs[k] = append(f.costs[k], cost)
		}
		f.dropDominated(f.costs[k])
		if !runs {
			return false
		}
	}
	for _, k := range c.kindOf {
		for g := range f.groups {
			var states, active float64
			for _, cost := range f.costs[k] {
				states, active = max(states, cost.states[g]), max(active, cost.active[g])
				f.most.peak[g] = max(f.most.peak[g], cost.peak[g])
			}
			f.most.states[g] += states
			f.most.active[g] += active
		}
	}
	return true
}

// dropDominated leaves out strategies of a layer that another of the same tensor degree is as good as in every number.
func (f *configuration) dropDominated(costs []layerCost) {
	for i := range costs {
		for j := range costs {
			if i != j && f.strategies[i].Tensor == f.strategies[j].Tensor && !math.IsInf(costs[j].step[0], 1) && costs[j].atMost(&costs[i], len(f.groups)) && (j < i || !costs[i].atMost(&costs[j], len(f.groups))) {
				costs[i] = never
				break
			}
		}
	}
}

// atMost reports whether a layer takes no more than another of anything on so many groups.
func (c *layerCost) atMost(o *layerCost, groups int) bool {
	for g := range groups {
		if c.step[g] > o.step[g] || c.perIteration[g] > o.perIteration[g] || c.states[g] > o.states[g] || c.active[g] > o.active[g] || c.peak[g] > o.peak[g] {
			return false
		}
	}
	return true
}

// roomy says whether all layers of the model fit in one stage of a configuration under any strategies: then memory decides nothing.
func (c *Condition) roomy(f *configuration, inflight int) bool {
	for i, g := range f.groups {
		if f.most.states[i]+float64(inflight)*f.most.active[i]+f.most.peak[i]+c.Reserve(g.Class) > c.Limit(g.Class) {
			return false
		}
	}
	return true
}

// replicas is the number of replicas of a layer over all groups, and the tensor degree and largest share in group g.
func replicas(groups []Group, samples int, y Strategy, g int) (n, tensor, share int) {
	own := groups[g]
	if y.Tensor == 0 {
		for _, other := range groups {
			n += other.Replicas
		}
		return n, own.Tensor, slices.Max(own.Shares)
	}
	n = own.Devices() / y.Tensor
	return n, y.Tensor, (samples + n - 1) / n
}

// never is the cost of what cannot run.
var never = layerCost{step: [MaxGroups]float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}}

// layer prices layer l on groups under a strategy, with so many samples in a micro-batch.
func (m *Model) layer(groups []Group, l, samples int, y Strategy) layerCost {
	var cost layerCost
	o, calibration := &m.options, &m.options.Calibration
	for i, g := range groups {
		n, tensor, share := replicas(groups, samples, y, i)
		run, ok := m.Curve(l, g.Class, tensor).At(share)
		if !ok || m.Cannot(groups, g, l, tensor) != "" {
			return never
		}
		passes := m.PassFactor(g.Class)
		x := terms{forward: run.Forward * passes, backward: run.Backward * passes}
		switch {
		case y.Checkpoint:
			x.recompute = x.forward
		case y.Selective:
			x.recompute = run.Selective * passes
		}
		h := m.Hold(l, tensor, n, func(bytes float64) float64 { return m.Gather(groups, samples, y, i, bytes) },
			func(bytes float64) float64 { return m.GatherExperts(g, tensor, bytes) })
		x.update = h.Update(run.Update*m.DeviceFactor(g.Class), y.Sharding)
		backward := x.backward + x.recompute
		// What is exchanged while a pass computes.
		ahead := m.Ring(g.Class, l, tensor, share)
		behind := 2 * ahead // keys and values, and their gradients
		if y.Checkpoint || y.Selective {
			behind += ahead
		}
		switch y.Sharding {
		case Full:
			ahead += h.GatherWeights
			behind += h.GatherWeights + h.GatherGradients
		case Gradients:
			// A device keeps its part of the gradients alone, so every micro-batch's are scattered; the weights are gathered
			// after the update, when nothing computes.
			behind += h.GatherGradients
			x.sync = h.GatherWeights
		default:
			allReduce := 2 * h.GatherGradients // a reduce-scatter, then an all-gather
			x.sync = m.Behind(y.Sharding, backward, allReduce)
		}
		toAll := 2 * m.ToAll(g, l, tensor, share) // there and back, while nothing computes
		x.gatherForward = o.Overlap.Together(x.forward, ahead) - x.forward + toAll
		x.gatherBackward = o.Overlap.Together(backward, behind) - backward + toAll
		if y.Checkpoint {
			x.gatherBackward += toAll
		}
		cost.terms[i] = x
		cost.step[i] = x.step()
		cost.perIteration[i] = x.sync + x.update
		cost.states[i] = h.States(o.States, y.Sharding) + run.Fixed
		kept := m.Keeps(&run, l, tensor, share)
		cost.active[i], cost.whole[i] = kept.Activation, kept.Activation
		cost.peak[i] = calibration.Working * kept.Working
		switch {
		case y.Checkpoint:
			cost.active[i] = kept.Input
			cost.peak[i] += kept.Activation
		case y.Selective:
			cost.active[i] -= kept.Freed
			cost.peak[i] += kept.Freed
		}
		switch y.Sharding {
		case Full:
			cost.peak[i] += h.weights + h.gradients
		case Gradients:
			cost.peak[i] += h.gradients // until they are scattered
		}
	}
	return cost
}

// kept is the bytes of a micro-batch's share in a device: from its forward to its backward pass, of these what selective recomputation
// does not keep, the layer's input, and input and output while it runs.
type Kept struct{ Activation, Freed, Input, Working float64 }

func (m *Model) Keeps(run *layerprofile.Run, l, tensor, share int) Kept {
	k, activations := float64(share)/float64(m.spread.Context), m.options.Calibration.Activations
	before := 0.0
	if l > 0 {
		before = m.profile.Layers[l-1].Output
	}
	x := Kept{activations * run.Activation * k, activations * run.Freed * k, before * k, (before + m.profile.Layers[l].Output) * k}
	if m.options.Sequence && tensor > 1 { // devices keep parts of what they otherwise all have
		x.Activation -= activations * run.Sequence * k
		x.Input /= float64(tensor)
	}
	return x
}
