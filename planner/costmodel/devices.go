package costmodel

import (
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/layerprofile"
)

// devices are the devices of the cluster by class, or units of spread.Context devices that work like one, and the possible tensor
// degrees of each class.
type devices struct {
	topology   *cluster.Topology // of units
	spread     Spread            // of all plans that the model prices
	perMachine []int             // devices (not units) of a machine of each class
	tensors    [][]int           // tensor degrees of each class, rising; none: the class is not used
}

// Classes are the classes of devices, or of units of Spread.Context devices.
func (d *devices) Classes() []cluster.Class { return d.topology.Classes }

// Spread is the spread of all plans that the model prices.
func (d *devices) Spread() Spread { return d.spread }

// Tensors are the tensor degrees that some class can have, rising.
func (d *devices) Tensors() []int {
	all := slices.Concat(d.tensors...)
	slices.Sort(all)
	return slices.Compact(all)
}

// TensorsOf are the tensor degrees that a class can have, rising.
func (d *devices) TensorsOf(class int) []int { return d.tensors[class] }

// Count is the number of devices, or of units, of all classes.
func (d *devices) Count() (n int) {
	for _, c := range d.topology.Classes {
		n += c.Count
	}
	return n
}

// degree is a tensor degree on a class. The devices of a replica lie within a machine or take whole machines; false: neither is
// possible.
func (d *devices) degree(class, tensor int) (layerprofile.Degree, bool) {
	per, context := d.perMachine[class], d.spread.Context
	switch {
	case per%context != 0:
		return layerprofile.Degree{}, false
	case tensor*context <= per:
		return layerprofile.Degree{Tensor: tensor, Machines: 1}, true
	}
	return layerprofile.Degree{Tensor: tensor, Machines: tensor / per}, context == 1 && tensor%per == 0
}

// wide says whether a replica of a tensor degree takes several machines of a class.
func (d *devices) wide(class, tensor int) bool { return tensor > d.topology.Classes[class].PerMachine }

// Place is the number of machines that a group lies on, and the most of its devices on one machine. Groups of plans from the
// search begin with a machine or lie within one; those of other plans need not.
func (d *devices) Place(g Group) (machines, most int) {
	per := d.topology.Classes[g.Class].PerMachine
	end := g.First + g.Devices()
	head, tail := per-g.First%per, (end-1)%per+1 // devices of the first and the last machine up to the group's border
	switch machines = (end-1)/per - g.First/per + 1; machines {
	case 1:
		return 1, g.Devices()
	case 2:
		return 2, max(head, tail)
	default:
		return machines, per
	}
}

// machine is the number of the machine that a stage lies within; -1: it takes several machines.
func (d *devices) machine(s *Stage) int {
	if len(s.Groups) != 1 {
		return -1
	}
	g := s.Groups[0]
	if machines, _ := d.Place(g); machines > 1 {
		return -1
	}
	before := 0
	for _, k := range d.topology.Classes[:g.Class] {
		before += k.Count / k.PerMachine
	}
	return before + g.First/d.topology.Classes[g.Class].PerMachine
}

func (d *devices) together(a, b *Stage) bool {
	machine := d.machine(a)
	return machine >= 0 && machine == d.machine(b)
}

// Within says whether n devices from the first one on can be replicas of a tensor degree: each replica lies within a machine or
// takes whole machines.
func Within(first, n, tensor, perMachine int) bool {
	if tensor > perMachine {
		return tensor%perMachine == 0 && first%perMachine == 0
	}
	for d := first; d < first+n; d += tensor {
		if d/perMachine != (d+tensor-1)/perMachine {
			return false
		}
	}
	return true
}
