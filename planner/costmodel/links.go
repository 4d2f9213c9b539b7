package costmodel

import "slices"

// place is how many machines a group lies in, and the most of its devices that lie in one of them. Plans of the search
// begin with a machine or lie within one, those by hand need not.
func (m *Model) Place(g Group) (machines, most int) {
	per := m.topology.Classes[g.Class].PerMachine
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

// gather is the seconds of an all-gather or a reduce-scatter between the replicas of a layer, of so many bytes for each
// device of group g when whole: over a ring of all, or within machines and then between them; the cheaper.
func (m *Model) Gather(groups []Group, samples int, y Strategy, g int, bytes float64) float64 {
	all, own, _ := replicas(groups, samples, y, g)
	all *= m.spread.Context
	if all == 1 || bytes == 0 {
		return 0
	}
	n, factor := float64(all), m.options.Calibration.Links
	if machines, _ := m.Place(groups[0]); len(groups) == 1 && machines == 1 {
		g := groups[0]
		return factor * (n - 1) * m.inside[g.Class].Seconds(bytes/n)
	}
	// A machine's link carries the rings of all devices of a replica that it has: the whole layer, if it has them all.
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
	return factor * min(ring, hierarchy)
}

// convert is the seconds, both ways, to redistribute the input of layer l between two strategies.
func (m *Model) convert(groups []Group, l, samples int, from, to Strategy) float64 {
	if from.Tensor == to.Tensor || l == 0 {
		return 0
	}
	g := groups[0]
	_, a, x := replicas(groups, samples, from, 0)
	_, b, y := replicas(groups, samples, to, 0)
	width := float64(max(a, b))
	bytes := m.profile.Layers[l-1].Output * float64(max(x, y)) / float64(m.spread.Context) * (width - 1) / width
	path := m.inside[g.Class]
	if machines, _ := m.Place(g); machines > 1 {
		path = m.between[g.Class][g.Class]
	}
	return 2 * m.options.Calibration.Links * path.Seconds(bytes)
}

// Kind implements search.Costs: the classes of a shape, and whether it is less than a machine.
func (c *Condition) Kind(shape int) int {
	kind := 0
	for class, n := range c.shapes[shape] {
		if n > 0 {
			kind |= 2 << class
		}
	}
	if g := c.configurations[shape].groups; len(g) == 1 && g[0].Devices() < c.topology.Classes[g[0].Class].PerMachine {
		kind |= 1
	}
	return kind
}

// Boundary implements search.Costs; see send.
func (c *Condition) Boundary(layer, shape, next int, used []int) (busy, sum float64) {
	groups := c.configurations[shape].groups
	class := groups[0].Class
	// The next stage begins in the machine in which this one ends.
	together := c.Kind(shape) == next && next&1 == 1 && (c.topology.Classes[class].Count-used[class])%c.topology.Classes[class].PerMachine != 0
	var to []int
	for other := range c.topology.Classes {
		if next&(2<<other) != 0 {
			to = append(to, other)
		}
	}
	s := c.send(groups, layer, to, together)
	return s, s
}

// send is the seconds of a micro-batch from a stage before layer to the next one on these classes, there and back: every
// replica sends the activations of its share, the replicas of a machine over one link unless both stages lie together in
// a machine, and receives as many bytes of gradients.
func (m *Model) send(groups []Group, layer int, to []int, together bool) float64 {
	longest := 0.0
	for _, g := range groups {
		bytes := m.profile.Layers[layer-1].Output * float64(slices.Max(g.Shares))
		if together {
			return 2 * m.options.Calibration.Links * m.inside[g.Class].Seconds(bytes/float64(m.spread.Context))
		}
		_, most := m.Place(g)
		bytes *= float64(most) / float64(g.Tensor)
		for _, other := range to {
			longest = max(longest, m.between[g.Class][other].Seconds(bytes))
		}
	}
	return 2 * m.options.Calibration.Links * longest
}

// within says whether every replica of a degree lies within a machine, or takes whole machines.
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
