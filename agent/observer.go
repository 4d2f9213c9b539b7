package agent

import (
	"evenkeel/cluster"
	"evenkeel/env"
)

// Observer learns about a run's nodes from its reports, whatever policy planned the run. Its beliefs are those of a controller
// without a network that saw every report and made no decisions.
type Observer struct {
	cluster *cluster.Cluster
	tracker *env.Tracker
	actions []int
	rounds  []int                 // measurements of each node
	newest  []cluster.Performance // in force now
	perf    []cluster.Performance
}

// NewObserver starts from the profiles of c.
func NewObserver(c *cluster.Cluster) *Observer {
	n := len(c.Nodes)
	return &Observer{
		cluster: c, tracker: env.NewTracker(c), actions: make([]int, n), rounds: make([]int, n),
		newest: c.Nominal(), perf: make([]cluster.Performance, n),
	}
}

// Add processes the report of the next round.
func (o *Observer) Add(report *cluster.Report) {
	for i := range report.Nodes {
		if report.Nodes[i].Measured() {
			o.rounds[i]++
		}
	}
	o.tracker.Observe(report)
	o.tracker.Model(o.actions)
	o.tracker.Apply(o.actions, o.newest)
}

// Performance returns performance parameters for sizes that will not change for a long time, in node order; valid until the
// next call. A node has its long-run slowdown, without a present slow spell, and a margin for its noise, because rounds wait
// for all nodes. For a node without any gradient, they follow from its profile and its lateness.
func (o *Observer) Performance() []cluster.Performance {
	for i := range o.perf {
		o.perf[i] = o.cluster.Nodes[i].Slowed(o.newest[i], 1/o.Slowed(i))
	}
	return o.perf
}

// Rounds returns the number of rounds that measured a node.
func (o *Observer) Rounds(node int) int { return o.rounds[node] }

// Slowed returns a node's slowdown over its long-run slowdown: above 1 if the node was in a slow spell in the last rounds.
func (o *Observer) Slowed(node int) float64 {
	if o.rounds[node] == 0 {
		return 1
	}
	b := o.tracker.Belief(node)
	return b.Slowdown / b.Level
}

// NoiseScale returns the gradient noise scale in samples, as estimated from the gradients' norms; 0 if there is no estimate, or
// it is too uncertain to set a learning rate by.
func (o *Observer) NoiseScale() float64 { return o.tracker.SureScale() }
