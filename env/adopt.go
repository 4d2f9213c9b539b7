package env

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// Adopt takes over what o knows about nodes that are in both: node i of t is node from[i] of o; below 0: o does not have it.
// Unfinished work is forgotten. A node without any knowledge, not even a profile, is assumed to be the mean of the others. Call
// it before the first round.
func (t *Tracker) Adopt(o *Tracker, from []int) {
	sum, count := 0.0, 0.0
	for i, k := range from {
		if k < 0 {
			continue
		}
		n := o.nodes[k]
		n.left, n.busy, n.busySize, n.fresh, n.late = 0, 0, 0, false, false
		t.nodes[i] = n
		if n.count > 0 {
			per := n.base.PerSample
			if n.form.doubt > 0 { // what is taken for overhead may be none
				per += (n.base.Overhead - t.cluster.Nodes[i].Network) / n.form.at
			}
			sum += per * n.slowdown
			count++
		}
	}
	for i := range t.nodes {
		if n := &t.nodes[i]; count > 0 && n.unknown && n.count == 0 {
			n.base.PerSample = sum / count
		}
	}
	t.fleet.jumps, t.fleet.risen, t.fleet.stayed = o.fleet.jumps, o.fleet.risen, o.fleet.stayed
	t.rounds, t.scale, t.noise = o.rounds, o.scale, o.noise
}

// Performance writes every node's parameters, as last believed and with the last margin, into perf.
func (t *Tracker) Performance(perf []cluster.Performance) {
	for i := range t.nodes {
		perf[i] = t.nodes[i].performance(&t.cluster.Nodes[i])
	}
}

// performance is what to allocate by.
func (n *track) performance(node *cluster.Node) cluster.Performance {
	return node.Slowed(n.base, n.slowdown*(1+n.lag(n.deviation()))*(1+n.margin*n.pooled*math.Sqrt(1+n.variance)))
}
