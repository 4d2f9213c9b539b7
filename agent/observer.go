package agent

import (
	"evenkeel/cluster"
	"evenkeel/env"
)

// Observer learns about a run's nodes from its reports, whatever policy planned the run. It
// has the belief of a controller that took in each report and decided nothing. Beliefs move
// by the model's own updates, as a controller's do without a network.
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

// Add takes in the report of the next round.
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

// Performance returns the performance parameters for sizes that stay as they are for a long
// time, in node order; valid until the next call. A node has its long-run slowdown, without
// a present spell of slowness, and a margin for its noise, since rounds wait for all nodes. For
// a node that has not delivered anything, they follow from its profile and its lateness.
func (o *Observer) Performance() []cluster.Performance {
	for i := range o.perf {
		o.perf[i] = o.cluster.Nodes[i].Slowed(o.newest[i], 1/o.Slowed(i))
	}
	return o.perf
}

// Rounds is how many rounds measured a node.
func (o *Observer) Rounds(node int) int { return o.rounds[node] }

// Slowed is a node's slowdown over its long-run one: above 1 where the last rounds caught it
// in a spell of slowness.
func (o *Observer) Slowed(node int) float64 {
	if o.rounds[node] == 0 {
		return 1
	}
	b := o.tracker.Belief(node)
	return b.Slowdown / b.Level
}

// NoiseScale is the gradient noise scale in samples, as the gradients' norms show it; 0 if
// nothing does, or not well enough for a learning rate to follow it.
func (o *Observer) NoiseScale() float64 { return o.tracker.SureScale() }
