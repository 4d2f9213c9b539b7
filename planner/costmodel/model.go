package costmodel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster"
	"evenkeel/planner/layerprofile"
)

// Model prices stages of one model on one cluster: what layers take on devices, what devices send over links, and what fits into
// memory.
type Model struct {
	layers
	links
	options  Options
	warnings []string
	even     bool     // replicas of a stage take equal shares
	beside   bool     // stages compute while they send
	late     late     // which gradients are exchanged after the last backward pass
	measured []string // the device of the profile that each class is
	tied     float64  // elements that the last layer shares with the first
	alone    *Model   // the model of plans of one stage; nil: this one
}

// New checks that profile, cluster and options fit together. Errors wrap ErrOptions, layerprofile.ErrProfile or search.ErrInfeasible.
func New(p *layerprofile.Profile, t *cluster.Topology, o Options) (*Model, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Model{layers: newLayers(p), options: o}
	m.topology, m.spread, m.factor, m.divided = t, Spread{1, 1}, o.Calibration.Links, o.Sequence
	for _, w := range p.Warnings {
		// Other devices of the profile do not matter.
		device, _, _ := strings.Cut(w, ",")
		if !slices.Contains(p.Devices(), device) || slices.ContainsFunc(t.Classes, func(c cluster.Class) bool { return device == c.Device || device == cluster.Card(c.Device) }) {
			m.warnings = append(m.warnings, w)
		}
	}
	for i := range t.Classes {
		if err := m.addClass(&t.Classes[i]); err != nil {
			return nil, err
		}
	}
	if err := m.keepTensors(); err != nil {
		return nil, err
	}
	for a := range t.Classes {
		m.inside = append(m.inside, t.Within(a))
		m.between = append(m.between, nil)
		for b := range t.Classes {
			m.between[a] = append(m.between[a], t.Between(a, b))
		}
	}
	if n := len(p.Layers); o.LeastStages > n {
		return nil, fmt.Errorf("%w: at least %d stages, but the model has %d layers", ErrOptions, o.LeastStages, n)
	}
	if o.Checkpoint == "selective" && !m.Selects() {
		return nil, badOption("checkpoint selective, but the layer profile says of no layer what that saves (selective_seconds, selective_bytes)")
	}
	if o.Sequence && !m.some(func(r *layerprofile.Run) bool { return r.Sequence > 0 }) {
		m.warnings = append(m.warnings, "sequence parallelism: the layer profile says of no layer what it saves (sequence_bytes); activations are taken as measured with it")
	}
	if err := m.checkSpreads(); err != nil {
		return nil, err
	}
	if err := m.tie(); err != nil {
		return nil, err
	}
	return m, nil
}

// addClass adds the tensor degrees of a class: those that divide a machine, and those over whole machines.
func (m *Model) addClass(c *cluster.Class) error {
	p, device := m.profile, c.Device
	if devices := p.Devices(); !slices.Contains(devices, device) && slices.Contains(devices, cluster.Card(device)) {
		device = cluster.Card(device)
	}
	var tensors []int
	for _, d := range p.Degrees(device) {
		if d.Machines == 1 && c.PerMachine%d.Tensor == 0 || d.Machines > 1 && d.Tensor == d.Machines*c.PerMachine && d.Tensor <= c.Count {
			tensors = append(tensors, d.Tensor)
		}
	}
	switch {
	case len(tensors) > 0:
	case slices.Contains(p.Devices(), device):
		return fmt.Errorf("%w: %s was profiled at tensor degrees %v; none divides the %d devices of a machine", layerprofile.ErrProfile, c.Device, p.Degrees(device), c.PerMachine)
	default:
		return fmt.Errorf("%w: %s is in the cluster, but the layer profile does not have it; it has %v", layerprofile.ErrProfile, c.Device, p.Devices())
	}
	m.perMachine, m.measured = append(m.perMachine, c.PerMachine), append(m.measured, device)
	m.tensors = append(m.tensors, tensors)
	return nil
}

// keepTensors drops the tensor degrees that the options do not have. A class without any is not used.
func (m *Model) keepTensors() error {
	o := &m.options
	if len(o.Tensors) == 0 {
		return nil
	}
	known := m.Tensors()
	for i := range m.tensors {
		m.tensors[i] = slices.DeleteFunc(m.tensors[i], func(t int) bool { return !slices.Contains(o.Tensors, t) })
	}
	if len(m.Tensors()) == 0 {
		return badOption("tensor degrees %v; profiled, and possible within a machine or over whole machines (machines of the layer profile), are %v", o.Tensors, known)
	}
	return nil
}

// Warnings say, line by line, what was left out or corrected.
func (m *Model) Warnings() []string { return m.warnings }

// Choices are the options with their defaults.
func (m *Model) Choices() Options { return m.options }

// Curve is what was measured of a layer on a class at a tensor degree, by micro-batch.
func (m *Model) Curve(layer, class, tensor int) layerprofile.Curve {
	d, ok := m.degree(class, tensor)
	if !ok {
		return nil
	}
	return m.profile.Layers[layer].Curve(m.measured[class], d)
}

// MeasuredTensors are the tensor degrees at which a layer was measured and that a machine, or whole machines, have devices for. A
// plan by hand may use them whatever the options are.
func (m *Model) MeasuredTensors(layer, class int) []int {
	var all []int
	for _, r := range m.profile.Layers[layer].Runs {
		if d, ok := m.degree(class, r.Tensor); ok && r.Device == m.measured[class] && d.Machines == max(1, r.Machines) {
			all = append(all, r.Tensor)
		}
	}
	return slices.Compact(all)
}

// SomeTensors are the tensor degrees that the options allow and some layer was measured at on a class, rising. A plan may have them for
// those layers.
func (m *Model) SomeTensors(class int) (all []int) {
	k := &m.topology.Classes[class]
	for l := range m.profile.Layers {
		for _, t := range m.MeasuredTensors(l, class) {
			if (k.PerMachine%t == 0 || m.wide(class, t)) && t <= k.Count && (len(m.options.Tensors) == 0 || slices.Contains(m.options.Tensors, t)) {
				all = append(all, t)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Wides are the tensor degrees over several machines of a class at which some layer was measured.
func (m *Model) Wides(class int) (all []int) {
	for l := range m.profile.Layers {
		for _, t := range m.MeasuredTensors(l, class) {
			if m.wide(class, t) && t <= m.topology.Classes[class].Count && !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	slices.Sort(all)
	return all
}

// mostSamples is the largest micro-batch that every layer was measured with on a replica of a group.
func (m *Model) mostSamples(g Group) int {
	most := math.MaxInt32
	for l := range m.profile.Layers {
		runs := m.Curve(l, g.Class, g.Tensor)
		most = min(most, runs[len(runs)-1].MicroBatch)
	}
	return most
}

// LargestMicroBatch is the largest micro-batch that any layer was measured with, in samples.
func (m *Model) LargestMicroBatch() int {
	most := 0
	for class := range m.topology.Classes {
		for _, t := range m.tensors[class] {
			for l := range m.profile.Layers {
				runs := m.Curve(l, class, t)
				most = max(most, runs[len(runs)-1].MicroBatch)
			}
		}
	}
	return most
}
