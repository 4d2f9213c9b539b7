// Package costmodel prices hybrid-parallel plans: seconds and bytes of every stage, term by term, from a layer profile, a
// cluster's topology and options. New makes a Model; Price prices stage configurations; Conditions are the cost functions
// of package search, one for each preset condition, and Stages turns a plan that the search found into stage
// configurations.
//
// Times of a layer are interpolated from its profile. Collectives take the cheaper of a ring over all replicas and a
// hierarchy within and then between machines; links cost latency plus bytes over bandwidth. Overlapped compute and
// communication slow each other down as in Galvatron's model.
package costmodel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
	"github.com/evenkeel/evenkeel/planner/search"
)

// Model prices stages of one model on one cluster.
type Model struct {
	profile  *layerprofile.Profile
	topology *cluster.Topology
	options  Options
	devices  []string         // of the classes
	tensors  [][]int          // tensor degrees of each class
	inside   []cluster.Path   // within machines of each class
	between  [][]cluster.Path // between machines of two classes
	warnings []string
	even     bool // replicas of a stage take equal shares
	selects  bool // some layer may be recomputed in part
	late     late // what is exchanged behind the last backward pass

	spread     Spread // of all that this model prices; its topology is of units of Spread.Context devices
	perMachine []int  // devices of a machine of each class

	tied  float64 // elements that the last layer shares with the first
	alone *Model  // that of plans of one stage; nil: the same

	kinds  int     // of layers: layers of a kind cost the same
	kindOf []int32 // of each layer
	counts [][]int // layers of each kind before layer i
	runOf  [][]int32
}

// New checks that profile, cluster and options fit together. Errors wrap ErrOptions, layerprofile.ErrProfile or
// search.ErrInfeasible.
func New(p *layerprofile.Profile, t *cluster.Topology, o Options) (*Model, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Model{profile: p, topology: t, options: o, spread: Spread{1, 1}}
	for _, w := range p.Warnings {
		// Other devices of the profile do not matter.
		device, _, _ := strings.Cut(w, ",")
		if !slices.Contains(p.Devices(), device) || slices.ContainsFunc(t.Classes, func(c cluster.Class) bool { return c.Device == device }) {
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
	m.numberLayers()
	m.selects = slices.ContainsFunc(p.Layers, func(l layerprofile.Layer) bool {
		return slices.ContainsFunc(l.Runs, func(r layerprofile.Run) bool { return r.Selective > 0 || r.Freed > 0 })
	})
	if o.Checkpoint == "selective" && !m.selects {
		return nil, badOption("checkpoint selective, but the layer profile says of no layer what that saves (selective_seconds, selective_bytes)")
	}
	if o.Sequence && !slices.ContainsFunc(p.Layers, func(l layerprofile.Layer) bool {
		return slices.ContainsFunc(l.Runs, func(r layerprofile.Run) bool { return r.Sequence > 0 })
	}) {
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

// addClass notes the tensor degrees of a class: those that divide a machine, and those over whole machines.
func (m *Model) addClass(c *cluster.Class) error {
	p := m.profile
	var tensors []int
	for _, d := range p.Degrees(c.Device) {
		if d.Machines == 1 && c.PerMachine%d.Tensor == 0 || d.Machines > 1 && d.Tensor == d.Machines*c.PerMachine && d.Tensor <= c.Count {
			tensors = append(tensors, d.Tensor)
		}
	}
	switch {
	case len(tensors) > 0:
	case slices.Contains(p.Devices(), c.Device):
		return fmt.Errorf("%w: %s was profiled at tensor degrees %v; none divides the %d devices of a machine", layerprofile.ErrProfile, c.Device, p.Degrees(c.Device), c.PerMachine)
	default:
		return fmt.Errorf("%w: %s is in the cluster, but the layer profile does not have it; it has %v", layerprofile.ErrProfile, c.Device, p.Devices())
	}
	m.perMachine = append(m.perMachine, c.PerMachine)
	m.devices = append(m.devices, c.Device)
	m.tensors = append(m.tensors, tensors)
	return nil
}

// keepTensors leaves out the tensor degrees that the options do not have; a class without any is not used.
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

// Warnings are what was left out or corrected, a line each.
func (m *Model) Warnings() []string { return m.warnings }

// WithMemory is the model with factor times as much memory on every device.
func (m *Model) WithMemory(factor float64) *Model {
	return m.with(func(c *Model) { c.topology = m.topology.WithMemory(factor) })
}

// LargestMicroBatch is the largest micro-batch that any layer was profiled with, in samples.
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

// curve is a layer's runs on a class at a tensor degree.
func (m *Model) Curve(layer, class, tensor int) layerprofile.Curve {
	d, ok := m.degree(class, tensor)
	if !ok {
		return nil
	}
	return m.profile.Layers[layer].Curve(m.devices[class], d)
}

// degree is a tensor degree on a class: the devices of a replica lie in a machine, or are whole machines. False: neither can be.
func (m *Model) degree(class, tensor int) (layerprofile.Degree, bool) {
	per, context := m.perMachine[class], m.spread.Context
	switch {
	case per%context != 0:
		return layerprofile.Degree{}, false
	case tensor*context <= per:
		return layerprofile.Degree{Tensor: tensor, Machines: 1}, true
	}
	return layerprofile.Degree{Tensor: tensor, Machines: tensor / per}, context == 1 && tensor%per == 0
}

// wide says whether a replica of a tensor degree takes several machines of a class.
func (m *Model) wide(class, tensor int) bool { return tensor > m.topology.Classes[class].PerMachine }

// Wides are the tensor degrees over several machines of a class that some layer was measured at.
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

// MeasuredTensors are all degrees that a layer has runs of, and that a machine, or whole machines, have devices for: a plan by hand may use them.
func (m *Model) MeasuredTensors(layer, class int) []int {
	var all []int
	for _, r := range m.profile.Layers[layer].Runs {
		if d, ok := m.degree(class, r.Tensor); ok && r.Device == m.devices[class] && d.Machines == max(1, r.Machines) {
			all = append(all, r.Tensor)
		}
	}
	return slices.Compact(all)
}

// numberLayers numbers layers, and runs of layers, by what they cost.
func (m *Model) numberLayers() {
	n := len(m.profile.Layers)
	kinds := map[string]int32{}
	for i, l := range m.profile.Layers {
		before := 0.0
		if i > 0 {
			before = m.profile.Layers[i-1].Output
		}
		k := fmt.Sprint(l.Parameters, l.Output, before, l.Context, l.Experts, l.ExpertParameters, l.ExpertBytes, l.Runs)
		if _, ok := kinds[k]; !ok {
			kinds[k] = int32(len(kinds))
		}
		m.kindOf = append(m.kindOf, kinds[k])
	}
	m.kinds = len(kinds)
	m.counts = [][]int{make([]int, m.kinds)}
	for i, k := range m.kindOf {
		next := slices.Clone(m.counts[i])
		next[k]++
		m.counts = append(m.counts, next)
	}
	m.runOf = make([][]int32, n)
	runs := map[[2]int32]int32{} // kind of the first layer, number of the rest
	for from := n - 1; from >= 0; from-- {
		m.runOf[from] = make([]int32, n-from)
		for to := from + 1; to <= n; to++ {
			k := [2]int32{m.kindOf[from], -1}
			if to > from+1 {
				k[1] = m.runOf[from+1][to-from-2]
			}
			if _, ok := runs[k]; !ok {
				runs[k] = int32(len(runs))
			}
			m.runOf[from][to-from-1] = runs[k]
		}
	}
}

// content is the number of the run of layers from..to-1: runs of the same kinds in the same order share it.
func (m *Model) Run(from, to int) int32 { return m.runOf[from][to-from-1] }

// limit is the bytes of a device that a plan may fill, its reserve included.
func (m *Model) Limit(class int) float64 {
	return m.topology.Classes[class].Memory * m.options.Memory / (1 + m.options.Calibration.Margin)
}

// layersFit finds a layer that fits no device under any strategy: a micro-batch of one, sharded over all replicas of a stage of all
// classes, each device of the others a replica.
func (m *Model) layersFit() error {
	devices := 0
	for _, class := range m.topology.Classes {
		devices += class.Count
	}
	divided := 1.0 // experts, at most
	for _, s := range m.Spreads() {
		divided = max(divided, float64(s.Experts))
	}
	for i, l := range m.profile.Layers {
		l.Parameters -= l.ExpertParameters * (1 - 1/divided)
		fits, least, nearest := false, math.Inf(1), ""
		for c, class := range m.topology.Classes {
			for _, t := range m.tensors[c] {
				s := m.options.States
				need := l.Parameters/float64(t)*(s.Weights+s.Gradients+s.Optimizer/float64(devices-class.Count+class.Count/t)) + m.Reserve(c)
				if slices.Contains(m.options.Shardings, Full) {
					need = l.Parameters/float64(t)*s.Weights + m.Reserve(c)
				}
				fits = fits || need <= m.Limit(c)
				if need-m.Limit(c) < least {
					least = need - m.Limit(c)
					nearest = fmt.Sprintf("%s at tensor degree %d: %s, %s of it beside the model, of %s", class.Device, t, Bytes(need), Bytes(m.Reserve(c)), Bytes(m.Limit(c)))
				}
			}
		}
		if !fits {
			return fmt.Errorf("%w: layer %d (%s) is larger than every device; nearest is %s; profile a higher tensor degree, allow more of the memory or add larger devices", search.ErrInfeasible, i, l.Name, nearest)
		}
	}
	return nil
}

// Bytes formats a number of bytes.
func Bytes(b float64) string {
	if b < 1<<30 {
		return fmt.Sprintf("%.3g MiB", b/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", b/(1<<30))
}
