package agent

import (
	"slices"

	"github.com/evenkeel/evenkeel/cluster/memory"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

// Adopt takes over what an older control knows about nodes that are in both clusters, by their names, as when a job's
// ranks come back after a restart. A node's knowledge counts only if its device and profile are the same. Call it before
// the first round; the older control must not be used afterwards.
func (c *Control) Adopt(o *Control) {
	if o.plan.Sizes == nil {
		return // it has not begun
	}
	index := make(map[string]int, len(o.Cluster.Nodes))
	for k := range o.Cluster.Nodes {
		index[o.Cluster.Nodes[k].Name] = k
	}
	from := make([]int, len(c.Cluster.Nodes))
	for i := range from {
		n := &c.Cluster.Nodes[i]
		k, ok := index[n.Name]
		if from[i] = -1; ok && o.Cluster.Nodes[k].Device == n.Device && alike(o.Cluster.Nodes[k].Profile, n.Profile) {
			from[i] = k
		}
	}
	c.begin()
	c.memory.Adopt(o.memory, from)
	c.deadline.factor = o.deadline.factor
	if a, ok := c.Policy.(*Agent); ok {
		if b, ok := o.Policy.(*Agent); ok {
			a.tracker.Adopt(b.tracker, from)
			a.tracker.Performance(a.perf)
			if trackers := b.trackers(); a.guard != nil {
				a.guard.tracker.Adopt(trackers[len(trackers)-1], from)
			}
		}
	}
}

// alike says whether two profiles, nil where none is known, have the same points.
func alike(a, b *profile.Profile) bool {
	return a == b || a != nil && b != nil && slices.Equal(a.Points, b.Points)
}

// begin makes what a control needs for its first plan.
func (c *Control) begin() {
	if c.plan.Sizes == nil {
		c.plan.Sizes = make([]int, len(c.Cluster.Nodes))
		c.parts = newParticipation(len(c.Cluster.Nodes))
		c.memory = memory.New(c.Cluster)
	}
}
