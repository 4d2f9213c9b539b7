package planner

import (
	"math"
	"slices"
)

// way is one strategy of a layer on a form.
type way struct {
	tensor     int // 0: each team's own
	sharding   Sharding
	checkpoint bool
}

// maxTeams is the classes that a stage of a plan may mix; the search mixes two.
const maxTeams = 4

// layerCost is what a layer costs one way, by team; +Inf steps where it cannot run.
type layerCost struct {
	step   [maxTeams]float64 // seconds of a micro-batch
	tail   [maxTeams]float64 // seconds per iteration
	states [maxTeams]float64 // bytes
	active [maxTeams]float64 // bytes for each micro-batch in flight
	peak   [maxTeams]float64 // bytes while it runs
	terms  [maxTeams]terms
}

// terms are the parts of a layer's times. Gathering that a pass does not hide counts apart.
type terms struct{ forward, backward, again, gatherForward, gatherBackward, sync, update float64 }

func (t *terms) add(o terms) {
	t.forward += o.forward
	t.backward += o.backward
	t.again += o.again
	t.gatherForward += o.gatherForward
	t.gatherBackward += o.gatherBackward
	t.sync += o.sync
	t.update += o.update
}

// step is the seconds of a micro-batch.
func (t terms) step() float64 {
	return t.forward + t.backward + t.again + t.gatherForward + t.gatherBackward
}

// ways are the strategies to choose from on teams.
func (c *condition) ways(teams []team) []way {
	tensors := []int{0}
	if len(teams) == 1 {
		t := teams[0]
		for _, other := range c.tensors[t.class] {
			if other != t.tensor && t.devices()%other == 0 && t.devices()/other <= c.samples {
				tensors = append(tensors, other)
			}
		}
	}
	var all []way
	for _, tensor := range tensors {
		for _, s := range c.Options.Shardings {
			for _, again := range []bool{false, true} {
				if again && c.Options.Checkpoint == "never" || !again && c.Options.Checkpoint == "always" {
					continue
				}
				all = append(all, way{tensor, s, again})
			}
		}
	}
	return all
}

// price fills the costs of all kinds of layers on a form; false if some layer runs in no way.
func (c *condition) price(f *form) bool {
	first := map[int32]int{}
	for l, k := range c.alike {
		if _, ok := first[k]; !ok {
			first[k] = l
		}
	}
	f.costs = make([][]layerCost, len(first))
	for k, l := range first {
		runs := false
		for _, w := range f.ways {
			cost := c.layer(f, l, w)
			if n, _, _ := c.replicasOf(f, w, 0); n == 1 && w.sharding != Replicated && slices.Contains(c.Options.Shardings, Replicated) {
				cost = never // the same as not sharded
			}
			runs = runs || !math.IsInf(cost.step[0], 1)
			f.costs[k] = append(f.costs[k], cost)
		}
		if !runs {
			return false
		}
	}
	return true
}

// replicasOf is how many replicas a layer has over all teams, and the tensor degree and largest share in team g.
func (c *condition) replicasOf(f *form, w way, g int) (replicas, tensor, share int) {
	t := f.groups[g]
	if w.tensor == 0 {
		for _, t := range f.groups {
			replicas += t.replicas
		}
		return replicas, t.tensor, slices.Max(t.shares)
	}
	replicas = t.devices() / w.tensor
	return replicas, w.tensor, (c.samples + replicas - 1) / replicas
}

// never is the cost of what cannot run.
var never = layerCost{step: [maxTeams]float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}}

// layer prices layer l one way.
func (c *condition) layer(f *form, l int, w way) layerCost {
	var cost layerCost
	layer, s := &c.Profile.Layers[l], c.Options.States
	before := 0.0
	if l > 0 {
		before = c.Profile.Layers[l-1].Output
	}
	for g, t := range f.groups {
		replicas, tensor, share := c.replicasOf(f, w, g)
		run, ok := layer.times(c.devices[t.class], tensor).at(share)
		if !ok {
			return never
		}
		slow := c.Topology.Classes[t.class].Slowdown
		x := terms{forward: run.Forward * slow, backward: run.Backward * slow, update: run.Update * slow}
		if w.checkpoint {
			x.again = x.forward
		}
		parameters := layer.Parameters / float64(tensor)
		parts := float64(replicas)
		stored := States{s.Weights, s.Gradients, s.Optimizer}
		switch w.sharding {
		case Replicated:
			parts = 1
		case Optimizer:
			stored.Optimizer /= parts
		case Full:
			stored = States{s.Weights / parts, s.Gradients / parts, s.Optimizer / parts}
		}
		x.update /= parts
		// A device's part of the weights, and the gradients that come of it.
		weights, gradients := parameters*s.Weights, parameters*s.Gradients
		backward := x.backward + x.again
		if w.sharding == Full {
			x.gatherForward = c.Options.Overlap.Together(x.forward, c.gather(f, w, g, weights)) - x.forward
			x.gatherBackward = c.Options.Overlap.Together(backward, c.gather(f, w, g, weights)+c.gather(f, w, g, gradients)) - backward
		} else {
			x.sync = c.Options.Overlap.Together(backward, c.reduce(f, w, g, gradients)) - backward
		}
		cost.terms[g] = x
		cost.step[g] = x.step()
		cost.tail[g] = x.sync + x.update
		cost.states[g] = parameters * (stored.Weights + stored.Gradients + stored.Optimizer)
		n := float64(share)
		cost.active[g] = run.Activation * n
		cost.peak[g] = (before + layer.Output) * n
		if w.checkpoint {
			cost.active[g] = before * n
			cost.peak[g] += run.Activation * n
		}
		if w.sharding == Full {
			cost.peak[g] += weights + gradients
		}
	}
	return cost
}

// reduce is the seconds of an all-reduce of so many bytes a device between the replicas of a layer.
func (c *condition) reduce(f *form, w way, g int, bytes float64) float64 {
	return 2 * c.gather(f, w, g, bytes)
}

// gather is the seconds of an all-gather or a reduce-scatter between the replicas of a layer, of so many bytes a device
// of team g when whole: over a ring of all, or within machines and then between them; the cheaper.
func (c *condition) gather(f *form, w way, g int, bytes float64) float64 {
	replicas, own, _ := c.replicasOf(f, w, g)
	if replicas == 1 || bytes == 0 {
		return 0
	}
	n := float64(replicas)
	if t := f.groups[0]; len(f.groups) == 1 && t.devices() <= c.Topology.Classes[t.class].PerMachine {
		return (n - 1) * c.inside[t.class].Seconds(bytes/n)
	}
	// A machine's link carries the rings of all devices of a replica, so the whole layer.
	whole := bytes * float64(own)
	out, machines, inside := c.between[f.groups[0].class][f.groups[0].class], 0.0, 0.0
	for i, t := range f.groups {
		_, tensor, _ := c.replicasOf(f, w, i)
		per := c.Topology.Classes[t.class].PerMachine
		here := float64(max(1, min(t.devices(), per)/tensor)) // replicas of a machine
		machines += math.Ceil(float64(t.devices()) / float64(per))
		inside = max(inside, (here-1)*c.inside[t.class].Seconds(whole/float64(tensor)/here))
		for _, other := range f.groups[:i+1] {
			if path := c.between[t.class][other.class]; path.Seconds(whole) > out.Seconds(whole) {
				out = path
			}
		}
	}
	ring := (n - 1) * out.Seconds(whole/n)
	hierarchy := inside + (machines-1)*out.Seconds(whole/machines)
	return min(ring, hierarchy)
}

// convert is the seconds, there and back, to divide what flows into layer l anew between two ways.
func (c *condition) convert(f *form, l int, from, to way) float64 {
	if from.tensor == to.tensor || l == 0 {
		return 0
	}
	t := f.groups[0]
	_, a, x := c.replicasOf(f, from, 0)
	_, b, y := c.replicasOf(f, to, 0)
	width := float64(max(a, b))
	bytes := c.Profile.Layers[l-1].Output * float64(max(x, y)) * (width - 1) / width
	path := c.inside[t.class]
	if t.devices() > c.Topology.Classes[t.class].PerMachine {
		path = c.between[t.class][t.class]
	}
	return 2 * path.Seconds(bytes)
}

// Kind implements Costs: the classes of a shape, and whether it is less than a machine.
func (c *condition) Kind(shape int) int {
	kind := 0
	for class, n := range c.shapes[shape] {
		if n > 0 {
			kind |= 2 << class
		}
	}
	if f := c.forms[shape]; len(f.groups) == 1 && f.groups[0].devices() < c.Topology.Classes[f.groups[0].class].PerMachine {
		kind |= 1
	}
	return kind
}

// Boundary implements Costs; see send.
func (c *condition) Boundary(layer, shape, next int, used []int) (busy, sum float64) {
	f := &c.forms[shape]
	class := f.groups[0].class
	// The next stage begins in the machine in which this one ends.
	together := c.Kind(shape) == next && next&1 == 1 && (c.Topology.Classes[class].Count-used[class])%c.Topology.Classes[class].PerMachine != 0
	var to []int
	for other := range c.Topology.Classes {
		if next&(2<<other) != 0 {
			to = append(to, other)
		}
	}
	s := c.send(f, layer, to, together)
	return s, s
}

// send is the seconds of a micro-batch from a stage before layer to the next one on these classes, there and back: every
// replica sends the activations of its share, the replicas of a machine over one link unless both stages are together in
// a machine, and gets as much gradient back.
func (c *condition) send(f *form, layer int, to []int, together bool) float64 {
	longest := 0.0
	for _, t := range f.groups {
		bytes := c.Profile.Layers[layer-1].Output * float64(slices.Max(t.shares))
		if together {
			return 2 * c.inside[t.class].Seconds(bytes)
		}
		bytes *= math.Ceil(float64(min(t.devices(), c.Topology.Classes[t.class].PerMachine)) / float64(t.tensor))
		for _, other := range to {
			longest = max(longest, c.between[t.class][other].Seconds(bytes))
		}
	}
	return 2 * longest
}
