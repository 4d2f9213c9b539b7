package agent

import (
	"fmt"
	"slices"

	"evenkeel/cluster"
	"evenkeel/cluster/memory"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/internal/state"
)

// mostAway is how many nodes that are away beliefs keep, at least; beyond it as many as there are others.
const mostAway = 64

// Beliefs are what a control learnt about its nodes, and controls before it about nodes that it has not. A later control adopts
// them, for example after a job's restart.
type Beliefs struct {
	nodes    []known // those that were there last come first
	trackers []*env.Tracker
	steady   *steady
	memory   *memory.Learner
	factor   float64 // of an automatic deadline
}

// known says which node a belief is about.
type known struct {
	name, device string
	points       []profile.Point // of its profile; none: it has none
	limit        int             // of its micro-batch
}

// about is the node as beliefs know it.
func about(n *cluster.Node) known {
	k := known{name: n.Name, device: n.Device, limit: n.Limit}
	if n.Profile != nil {
		k.points = n.Profile.Points
	}
	return k
}

// is says whether both are the same node with the same device and profile.
func (k *known) is(o *known) bool {
	return k.name == o.name && k.device == o.device && slices.Equal(k.points, o.points)
}

// Beliefs returns what is known now; nil if c has not begun, or its policy is not an Agent. c must not be used afterwards.
func (c *Control) Beliefs() *Beliefs {
	a, ok := c.Policy.(*Agent)
	if !ok || c.plan.Sizes == nil {
		return nil
	}
	c.memory.Settle()
	b := &Beliefs{trackers: slices.Clone(a.trackers()), steady: a.steady, memory: c.memory, factor: c.deadline.factor}
	for i := range c.Cluster.Nodes {
		b.nodes = append(b.nodes, about(&c.Cluster.Nodes[i]))
	}
	if c.away != nil {
		all := make([]int, len(c.away.nodes))
		for k := range all {
			all[k] = k
		}
		b.add(c.away, all)
	}
	return b
}

// add takes over nodes of o.
func (b *Beliefs) add(o *Beliefs, which []int) {
	for _, k := range which {
		b.nodes = append(b.nodes, o.nodes[k])
	}
	for k, t := range b.trackers {
		b.trackers[k] = t.With(o.trackers[min(k, len(o.trackers)-1)], which)
	}
	b.steady, b.memory = b.steady.with(o.steady, which), b.memory.With(o.memory, which)
}

// Adopt takes over what is known about nodes with the same name, device and profile, and keeps the rest for controls after c.
// Call it before the first round. nil: nothing is known.
func (c *Control) Adopt(b *Beliefs) {
	a, ok := c.Policy.(*Agent)
	if !ok || b == nil {
		return
	}
	here := make(map[string]int, len(c.Cluster.Nodes))
	from := slices.Repeat([]int{-1}, len(c.Cluster.Nodes))
	for i := range c.Cluster.Nodes {
		here[c.Cluster.Nodes[i].Name] = i
	}
	var away []int
	limits := make([]int, len(b.nodes))
	for k := range b.nodes {
		n := &b.nodes[k]
		limits[k] = n.limit
		if i, ok := here[n.name]; !ok {
			away = append(away, k)
		} else if own := about(&c.Cluster.Nodes[i]); own.is(n) {
			from[i] = k
		}
	}
	c.begin()
	c.memory.Adopt(b.memory, from, limits)
	c.deadline.factor = b.factor
	for k, t := range a.trackers() {
		t.Adopt(b.trackers[min(k, len(b.trackers)-1)], from)
	}
	a.tracker.Performance(a.perf)
	a.steady.adopt(b.steady, from)
	if len(away) == 0 {
		return
	}
	c.away = &Beliefs{steady: new(steady), memory: new(memory.Learner)}
	for range b.trackers {
		c.away.trackers = append(c.away.trackers, new(env.Tracker))
	}
	c.away.add(b, away[:min(len(away), max(mostAway, len(from)))])
}

// Encode returns the beliefs as bytes, which DecodeBeliefs of the same version of the program reads.
func (b *Beliefs) Encode() ([]byte, error) { return state.Encode(b) }

// DecodeBeliefs reads what Encode returned.
func DecodeBeliefs(bytes []byte) (*Beliefs, error) {
	b := &Beliefs{}
	if err := state.Decode(bytes, b); err != nil {
		return nil, fmt.Errorf("agent: beliefs: %w", err)
	}
	return b, nil
}
