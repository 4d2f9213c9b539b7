package costmodel

import (
	"slices"

	"evenkeel/cluster"
)

// links are the paths between devices. Its methods return the seconds of transfers and collectives; bytes are those of one device.
type links struct {
	devices
	inside  []cluster.Path   // between devices of a machine of each class
	between [][]cluster.Path // between machines of two classes
	factor  float64          // of all times, by calibration
	divided bool             // the devices of a replica divide what it sends
}

// Inside is the path between devices of a machine of a class.
func (m *links) Inside(class int) cluster.Path { return m.inside[class] }

// Between is the path between machines of two classes.
func (m *links) Between(a, b int) cluster.Path { return m.between[a][b] }

// start is the seconds that a collective between devices of these groups takes beside its messages.
func (m *links) start(groups []Group) float64 {
	if machines, _ := m.Place(groups[0]); len(groups) == 1 && machines == 1 {
		return m.factor * m.inside[groups[0].Class].Start()
	}
	s := 0.0
	for i, g := range groups {
		for _, other := range groups[:i+1] {
			s = max(s, m.between[g.Class][other.Class].Start())
		}
	}
	return m.factor * s
}

// gather is the seconds of an all-gather or a reduce-scatter between the replicas of a layer, with this number of bytes on each
// device of group g afterwards (or before), beside its start. It takes the cheaper of a ring over all replicas, and a hierarchy: within machines,
// then between them.
func (m *links) gather(groups []Group, samples int, y Strategy, g int, bytes float64) float64 {
	all, own, _ := replicas(groups, samples, y, g)
	all *= m.spread.Context
	if all == 1 || bytes == 0 {
		return 0
	}
	n := float64(all)
	if machines, _ := m.Place(groups[0]); len(groups) == 1 && machines == 1 {
		return m.factor * (n - 1) * m.inside[groups[0].Class].Seconds(bytes/n)
	}
	// A machine's link carries the rings of all devices of a replica in it: the whole layer, if the replica lies within it.
	whole := bytes * float64(min(own, m.topology.Classes[groups[g].Class].PerMachine))
	out, machines, inside := m.between[groups[0].Class][groups[0].Class], 0.0, 0.0
	for i, g := range groups {
		_, tensor, _ := replicas(groups, samples, y, i)
		n, most := m.Place(g)
		here := float64(max(1, most/tensor) * m.spread.Context) // that hold the same weights in a machine
		per := m.topology.Classes[g.Class].PerMachine
		machines += float64(n) / float64(max(1, tensor/per))
		inside = max(inside, (here-1)*m.inside[g.Class].Seconds(whole/float64(min(tensor, per))/here))
		for _, other := range groups[:i+1] {
			if path := m.between[g.Class][other.Class]; path.Seconds(whole) > out.Seconds(whole) {
				out = path
			}
		}
	}
	ring := (n - 1) * out.Seconds(whole/n)
	hierarchy := inside + (machines-1)*out.Seconds(whole/machines)
	return m.factor * min(ring, hierarchy)
}

// gatherExperts is gather for experts, among the replicas with the same experts: one of each block.
func (m *links) gatherExperts(g Group, tensor int, bytes float64) float64 {
	e := m.spread.Experts
	same := float64(g.Devices() / tensor / e)
	if same <= 1 || bytes == 0 {
		return 0
	}
	machines, most := m.Place(g)
	if machines == 1 {
		return m.factor * (same - 1) * m.inside[g.Class].Seconds(bytes/same)
	}
	replicas := most / tensor // of a machine
	here, apart := 1.0, same  // that have the same experts in a machine, and machines that these are in
	if replicas >= e {
		here, apart = float64(replicas/e), float64(machines)
	}
	out := m.between[g.Class][g.Class]
	whole := bytes * float64(tensor*min(e, replicas)) // the rings of all devices of a machine that have others
	return m.factor * min((same-1)*out.Seconds(whole/same), (here-1)*m.inside[g.Class].Seconds(bytes/here)+(apart-1)*out.Seconds(whole/apart))
}

// ring is the seconds in which the devices of a unit pass the keys and values of a replica's share around once. sample is the
// bytes of a sample.
func (m *links) ring(class, tensor, share int, sample float64) float64 {
	c := float64(m.spread.Context)
	return m.factor * (c - 1) * m.inside[class].Seconds(sample*float64(share)/float64(tensor)/c)
}

// toAll is the seconds in which the replicas of a block send their samples to each other's experts, one way: within machines, and
// over the link of a machine for all its devices. sample is the bytes of a sample.
func (m *links) toAll(g Group, tensor, share int, sample float64) float64 {
	e := float64(m.spread.Experts)
	bytes := sample * float64(share) / float64(tensor) / e // to each of the others
	per := m.topology.Classes[g.Class].PerMachine
	if machines, _ := m.Place(g); machines == 1 || tensor*m.spread.Experts <= per {
		return m.factor * ((e-1)*m.inside[g.Class].Seconds(bytes) + m.inside[g.Class].Start())
	}
	here := float64(per / tensor) // replicas of a machine
	out := m.between[g.Class][g.Class]
	return m.factor * ((here-1)*m.inside[g.Class].Seconds(bytes) + (e/here-1)*out.Seconds(float64(per)*here*bytes) + out.Start())
}

// convert is the seconds to redistribute a layer's input between two strategies, in both passes. sample is the bytes of a sample.
func (m *links) convert(groups []Group, samples int, sample float64, from, to Strategy) float64 {
	if from.Tensor == to.Tensor {
		return 0
	}
	g := groups[0]
	_, a, x := replicas(groups, samples, from, 0)
	_, b, y := replicas(groups, samples, to, 0)
	width := float64(max(a, b))
	bytes := sample * float64(max(x, y)) / float64(m.spread.Context) * (width - 1) / width
	path := m.inside[g.Class]
	if machines, _ := m.Place(g); machines > 1 {
		path = m.between[g.Class][g.Class]
	}
	return 2 * (m.factor*path.Seconds(bytes) + m.start(groups))
}

// Divisor is what each device of a replica divides the replica's share by to send it on.
func (m *links) Divisor(tensor int) float64 {
	if m.divided {
		return float64(tensor)
	}
	return 1
}

// send is the seconds to send a micro-batch from a stage to the next one, which is on the classes to, and its gradient back. sample
// is the bytes of a sample. Every device of a replica sends the replica's share, or its part of that; the devices of a machine share its
// link, unless both stages lie in one machine (together).
func (m *links) send(groups []Group, sample float64, to []int, together bool) float64 {
	longest := 0.0
	for _, g := range groups {
		bytes := sample * float64(slices.Max(g.Shares)) / m.Divisor(g.Tensor)
		if together {
			return 2 * m.factor * m.inside[g.Class].Seconds(bytes/float64(m.spread.Context))
		}
		_, most := m.Place(g)
		for _, other := range to {
			longest = max(longest, m.between[g.Class][other].Seconds(bytes*float64(most)))
		}
	}
	return 2 * m.factor * longest
}

// exchangeTied is the seconds to sum the gradients of parameters that the first and the last stage share: an all-reduce between a
// replica of each. The replicas of a machine share its link, unless both stages lie in one machine.
func (m *links) exchangeTied(first, last *Stage, bytes float64) float64 {
	if bytes == 0 {
		return 0
	}
	half := bytes / 2
	if m.together(first, last) {
		g := first.Groups[0]
		return m.factor * (2*m.inside[g.Class].Seconds(half/float64(min(g.Tensor, last.Groups[0].Tensor))) + m.inside[g.Class].Start())
	}
	longest := 0.0
	for _, ends := range [][2]*Stage{{first, last}, {last, first}} {
		for _, g := range ends[0].Groups {
			_, most := m.Place(g)
			for _, class := range ends[1].classes() {
				path := m.between[g.Class][class]
				longest = max(longest, 2*path.Seconds(half*float64(most)/float64(g.Tensor)*float64(m.spread.Context))+path.Start())
			}
		}
	}
	return m.factor * longest
}
