package sim

import (
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/lengths"
)

// order is the samples of a run where they do not cost the same: every node has an endless
// order of its own. What it does not use, or uses in vain, comes first in its next round, so
// that long samples are not passed over for ever.
type order struct {
	costs []float64 // never written again, so copies may share it
	nodes []front
	seed  uint64
}

// front is the coming samples of a node.
type front struct {
	costs []float64 // those looked at and not used yet
	next  uint64    // the sample after them
	taken []int     // by the work under way, as places in costs
	free  []int     // the places that it has not taken so far, rising
	ahead []float64 // their costs
}

func newOrder(l *lengths.Lengths, seed uint64, nodes int) *order {
	if !l.Set() {
		return nil
	}
	return &order{costs: l.Costs(), seed: seed, nodes: make([]front, nodes)}
}

// cost is that of sample k of node i's order, by a hash (splitmix64's last steps).
func (o *order) cost(i int, k uint64) float64 {
	x := o.seed + (uint64(i)+1)*0xd1342543de82ef95 + (k+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return o.costs[x%uint64(len(o.costs))]
}

// A node looks at samples that cost so many times the coming micro-step, and so many mean
// ones more: of more to choose from, less time is left over.
const (
	lookTimes = 2
	lookMore  = 24
	lookMost  = 1 << 13 // samples
)

// next is the next micro-step of node i: how many samples, and what they cost in mean ones.
func (s *Simulator) next(i int, a *cluster.Accumulation, elapsed float64) (size int, cost float64) {
	if s.lengths == nil {
		size = a.Next(elapsed)
		return size, float64(size)
	}
	f := &s.lengths.nodes[i]
	if _, steps := a.Samples(); steps == 0 {
		f.taken, f.free, f.ahead = f.taken[:0], f.free[:0], f.ahead[:0]
		for k, c := range f.costs {
			f.free, f.ahead = append(f.free, k), append(f.ahead, c)
		}
	}
	sum, look, least := 0.0, 0, s.cluster.Nodes[i].LeastShare()
	for most := lookTimes*a.Ahead(elapsed) + lookMore; (sum <= most || look < least) && look < lookMost; look++ {
		if look == len(f.ahead) {
			c := s.lengths.cost(i, f.next)
			f.next++
			f.free, f.ahead = append(f.free, len(f.costs)), append(f.ahead, c)
			f.costs = append(f.costs, c)
		}
		sum += f.ahead[look]
	}
	places := a.NextOf(elapsed, f.ahead[:look])
	for _, k := range places {
		cost += f.ahead[k]
		f.taken = append(f.taken, f.free[k])
	}
	f.free, f.ahead = without(f.free, places), without(f.ahead, places)
	return len(places), cost
}

// without removes the values at rising places.
func without[T any](values []T, places []int) []T {
	kept := values[:0]
	for k, v := range values {
		if len(places) > 0 && places[0] == k {
			places = places[1:]
			continue
		}
		kept = append(kept, v)
	}
	return kept
}

// use takes what node i has handed in from the front of its order.
func (o *order) use(i int) {
	f := &o.nodes[i]
	slices.Sort(f.taken)
	f.costs, f.taken = without(f.costs, f.taken), f.taken[:0]
}

// copyFrom is a copy of from in o, whose memory is used again; nil where from is.
func (o *order) copyFrom(from *order) *order {
	if from == nil {
		return nil
	}
	if o == nil || len(o.nodes) != len(from.nodes) {
		o = &order{nodes: make([]front, len(from.nodes))}
	}
	o.costs, o.seed = from.costs, from.seed
	for i := range o.nodes {
		f, g := &o.nodes[i], &from.nodes[i]
		f.costs, f.next, f.taken = append(f.costs[:0], g.costs...), g.next, append(f.taken[:0], g.taken...)
		f.free, f.ahead = f.free[:0], f.ahead[:0]
	}
	return o
}
