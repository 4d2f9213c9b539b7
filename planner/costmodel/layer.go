package costmodel

import (
	"math"
	"slices"

	"evenkeel/planner/layerprofile"
)

// DeviceLayer is a layer on a device. Its replicas have Tensor devices of a class; the busiest takes Share samples of a micro-batch.
type DeviceLayer struct {
	Layer, Class, Tensor, Share int

	Run     layerprofile.Run // the measurement
	Holding *Holding
	ToAll   float64 // seconds of a pass to send samples to experts and back
}

// Times are the parts of a layer's time on a device, in seconds. Gathering counts as far as no pass hides it.
type Times struct {
	forward, backward, recompute  float64
	gatherForward, gatherBackward float64
	sync, update                  float64
}

func (t *Times) add(o Times) {
	t.forward += o.forward
	t.backward += o.backward
	t.recompute += o.recompute
	t.gatherForward += o.gatherForward
	t.gatherBackward += o.gatherBackward
	t.sync += o.sync
	t.update += o.update
}

// Step is the seconds of a micro-batch, both passes.
func (t Times) Step() float64 {
	return t.forward + t.backward + t.recompute + t.gatherForward + t.gatherBackward
}

// Forward is the seconds of a forward pass.
func (t Times) Forward() float64 { return t.forward + t.gatherForward }

// Once is the seconds of what happens once in an iteration: the exchange that no pass hides, and the update.
func (t Times) Once() float64 { return t.sync + t.update }

// Memory is what a layer takes of a device, in bytes.
type Memory struct {
	States      float64 // weights, gradients, optimizer, buffers
	Activations float64 // of a micro-batch in flight
	Working     float64 // while the layer runs: its input and output,
	Again       float64 // what is recomputed,
	gathered    float64 // and what is gathered of what is sharded
	whole       float64 // the activations of a micro-batch, whether they are recomputed or not
}

// OnDevice prices a layer on a device under a strategy. The tensor degree is that of the DeviceLayer.
func (m *Model) OnDevice(a *DeviceLayer, y Strategy) (x Times, u Memory) {
	o, h, passes := &m.options, a.Holding, m.PassFactor(a.Class)
	x = Times{forward: a.Run.Forward * passes, backward: a.Run.Backward * passes}
	switch {
	case y.Checkpoint:
		x.recompute = x.forward
	case y.Selective:
		x.recompute = a.Run.Selective * passes
	}
	x.update = h.update(a.Run.Update*m.slow(a.Class), y.Sharding)
	backward := x.backward + x.recompute
	// What is exchanged while a pass computes.
	ahead := m.ring(a.Class, a.Tensor, a.Share, m.profile.Layers[a.Layer].Context)
	behind := 2 * ahead // keys and values, and their gradients
	if y.Checkpoint || y.Selective {
		behind += ahead
	}
	switch y.Sharding {
	case Full:
		ahead += h.gatherWeights + h.start
		behind += h.gatherWeights + h.gatherGradients + 2*h.start
		u.gathered = h.weights + h.gradients
	case Gradients:
		// A device keeps only its part of the gradients, so those of every micro-batch are scattered. The weights are
		// gathered after the update, when nothing computes.
		behind += h.gatherGradients + h.start
		x.sync = h.gatherWeights + h.start
		u.gathered = h.gradients // until they are scattered
	default:
		allReduce := 2*h.gatherGradients + h.start
		if y.Sharding == Optimizer { // a reduce-scatter, and an all-gather after the update
			allReduce += h.start
		}
		x.sync = m.unhidden(y.Sharding, backward, allReduce)
	}
	x.gatherForward = o.Overlap.together(x.forward, ahead) - x.forward + a.ToAll
	x.gatherBackward = o.Overlap.together(backward, behind) - backward + a.ToAll
	if y.Checkpoint {
		x.gatherBackward += a.ToAll
	}
	held := o.States
	held.Gradients *= o.Calibration.Gradients
	u.States = h.states(held, y.Sharding) + a.Run.Fixed
	k, activations := float64(a.Share)/float64(m.spread.Context), o.Calibration.Activations
	input, freed := m.input(a.Layer)*k, activations*a.Run.Freed*k
	u.Activations = activations * a.Run.Activation * k
	u.Working = o.Calibration.Working * ((m.input(a.Layer) + m.profile.Layers[a.Layer].Output) * k)
	if o.Sequence && a.Tensor > 1 { // devices divide what they would otherwise all keep
		u.Activations -= activations * a.Run.Sequence * k
		input /= float64(a.Tensor)
	}
	u.whole = u.Activations
	switch {
	case y.Checkpoint:
		u.Activations, u.Again = input, u.whole
	case y.Selective:
		u.Activations, u.Again = u.whole-freed, freed
	}
	return x, u
}

// unhidden is the part of an exchange, once in an iteration, that the backward pass of a layer does not hide.
func (m *Model) unhidden(s Sharding, backward, exchange float64) float64 {
	if m.late == lateAll || m.late == lateUnsharded && s == Replicated {
		return exchange
	}
	return m.options.Overlap.together(backward, exchange) - backward
}

// slow is the factor on the profile's times of a class, for a device.
func (m *Model) slow(class int) float64 {
	k := &m.topology.Classes[class]
	if f, ok := m.options.Calibration.Compute[k.Device]; ok {
		return f * k.Slowdown
	}
	return k.Slowdown
}

// PassFactor is the factor on the profile's times of passes. The devices of a unit divide the passes.
func (m *Model) PassFactor(class int) float64 { return m.slow(class) / float64(m.spread.Context) }

// layerCost is the cost of a layer under a strategy, by group; its steps are +Inf where it cannot run.
type layerCost struct {
	step         [MaxGroups]float64 // seconds of a micro-batch
	perIteration [MaxGroups]float64 // seconds
	states       [MaxGroups]float64 // bytes
	active       [MaxGroups]float64 // bytes for each micro-batch in flight
	peak         [MaxGroups]float64 // bytes while it runs
	whole        [MaxGroups]float64 // bytes of a micro-batch's activations, whether recomputed or not
	times        [MaxGroups]Times
}

// never is the cost of what cannot run.
var never = layerCost{step: [MaxGroups]float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}}

// layer prices layer l on groups under a strategy, with so many samples in a micro-batch.
func (m *Model) layer(groups []Group, l, samples int, y Strategy) layerCost {
	var cost layerCost
	for i, g := range groups {
		_, tensor, share := replicas(groups, samples, y, i)
		run, ok := m.Curve(l, g.Class, tensor).At(share)
		if !ok || m.Cannot(groups, g, l, tensor) != "" {
			return never
		}
		h := m.HoldOn(groups, i, l, samples, y)
		x, u := m.OnDevice(&DeviceLayer{l, g.Class, tensor, share, run, &h, m.ToAll(g, l, tensor, share)}, y)
		cost.times[i], cost.step[i], cost.perIteration[i] = x, x.Step(), x.Once()
		cost.states[i], cost.active[i], cost.whole[i] = u.States, u.Activations, u.whole
		cost.peak[i] = u.Working + u.Again + u.gathered
	}
	return cost
}

// ToAll is the seconds of a pass to send samples to the experts of a layer and back; 0: the experts are not divided.
func (m *Model) ToAll(g Group, l, tensor, share int) float64 {
	if !m.Divides(l) {
		return 0
	}
	return 2 * m.toAll(g, tensor, share, m.profile.Layers[l].ExpertBytes)
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
