package cluster

import "evenkeel/cluster/profile"

// Limits of a cluster.
const (
	MaxNodes       = 100_000
	MaxGlobalBatch = 1 << 30
)

// Node is one training worker as it is known beforehand: its compute resources.
type Node struct {
	Name    string
	Device  string
	Profile *profile.Profile `state:"-"` // nil: no profile is known to the controller
	Limit   int              // largest micro-batch its memory holds, >= 1; profile.NoLimit when unknown
	Least   int              // smallest micro-batch that it takes, at most Limit; 0 counts as 1
	Shapes  []int            // all micro-batches that it takes, rising; nil: any from Least to Limit
	Equal   int              // micro-steps of every share (Cluster.SetEqualSteps); 0: as few as its memory allows
	Network float64          // seconds to deliver one gradient over its link
	TFLOPS  float64          // nameplate speed of the device at the workload's precision; 0 unknown
	Power   Power
	Host    string // what it shares with other nodes and may slow down by together with them; "": not known
	Rack    string // likewise
	Hidden  Hidden `state:"-"`
}

// MemoryLimit is the largest micro-batch that fits into a node's memory, in bytes (0:
// unknown), beside its part of the model state. It is below 1 if none fits, and
// profile.NoLimit if memory or peak memory is unknown.
func MemoryLimit(p *profile.Profile, w profile.Workload, memory int64, nodes int) int {
	if memory == 0 {
		return profile.NoLimit
	}
	return p.MemoryLimit(memory - w.StateBytes(nodes))
}

// Power is a node's power draw, in watts; the zero value: unknown.
type Power struct {
	Idle float64 `yaml:"idle"` // without work, 0..Busy
	Busy float64 `yaml:"busy"` // while it computes or sends its gradient, 0..10,000
}

// Joules is the energy of a node that works for busy of wait seconds; 0 if unknown.
func (p Power) Joules(busy, wait float64) float64 { return p.Busy*busy + p.Idle*(wait-busy) }

// Hidden is the part of a node that only simulators and oracles may read.
type Hidden struct {
	Profile  *profile.Profile // what the node really does; nil: Node.Profile
	Slowdown float64          // true over profile seconds, constant; 0 counts as 1
	Limit    int              // largest micro-batch its memory really holds; 0: Node.Limit
}

// Performance holds a node's performance parameters: the controller's belief about
// it. The finish time of a share b is Overhead + PerSample*Node.Cost(b).
type Performance struct {
	Overhead  float64 // seconds per round, independent of the size
	PerSample float64 // seconds per unit of Node.Cost: the profile's marginal seconds per sample times the slowdown
}

// Finish is the predicted time in seconds from hand-out to the gradient's arrival.
func (n *Node) Finish(p Performance, b int) float64 {
	return p.Overhead + p.PerSample*n.Cost(b)
}

// Near says whether two nodes are in one rack, or on one host where neither rack is known.
func (n *Node) Near(o *Node) bool { return n.Rack == o.Rack && (n.Rack != "" || n.Host == o.Host) }

// Slowness is the slowdown, relative to parameters p, that explains a node's time in a
// round. It scales all but the network's time.
func (n *Node) Slowness(p Performance, r *NodeReport) float64 {
	return n.SlownessOf(p, n.Cost(r.Size), r.Seconds)
}

// SlownessOf is Slowness for work of a cost (Node.Cost) that took so many seconds.
func (n *Node) SlownessOf(p Performance, work, seconds float64) float64 {
	compute := p.Overhead - n.Network + p.PerSample*work
	return max(seconds-n.Network, 0.01*seconds) / compute
}

// Slowed returns p slowed down by a factor, except for the network's time.
func (n *Node) Slowed(p Performance, factor float64) Performance {
	return Performance{Overhead: n.Network + (p.Overhead-n.Network)*factor, PerSample: p.PerSample * factor}
}

// nominal returns the performance parameters that follow from the profile alone
// (slowdown 1). A node without one gets its nameplate's share of reference, the
// seconds per sample of a 1 TFLOP/s device, or reference itself.
func (n *Node) nominal(reference float64) Performance {
	p := Performance{Overhead: n.Network, PerSample: reference}
	switch {
	case n.Profile != nil:
		p.PerSample = n.Profile.PerSample()
	case n.TFLOPS > 0:
		p.PerSample = reference / n.TFLOPS
	}
	return p
}

// Cluster is a set of nodes that train one workload together.
type Cluster struct {
	Workload    string
	GlobalBatch int // samples per round over all nodes
	Nodes       []Node
	Collect     Collect
	Choices     Choices
}

// Nominal returns every node's performance parameters from its profile, in node
// order. Nodes without a profile are scaled by their nameplate against the profiled
// ones; with no profile at all, they assume one second per sample and TFLOP/s.
func (c *Cluster) Nominal() []Performance {
	sum, known := 0.0, 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Profile != nil {
			sum += n.Profile.PerSample() * max(n.TFLOPS, 1)
			known++
		}
	}
	reference := 1.0
	if known > 0 {
		reference = sum / float64(known)
	}
	perf := make([]Performance, len(c.Nodes))
	for i := range c.Nodes {
		perf[i] = c.Nodes[i].nominal(reference)
	}
	return perf
}

// Revealed returns the cluster with every hidden profile shown, for an oracle.
func (c *Cluster) Revealed() *Cluster {
	r := *c
	r.Nodes = append([]Node(nil), c.Nodes...)
	for i := range r.Nodes {
		if p := r.Nodes[i].Hidden.Profile; p != nil {
			r.Nodes[i].Profile = p
		}
	}
	return &r
}

// Own returns c with its own copy of the nodes, so that what one run learns about them does not reach others.
func (c *Cluster) Own() *Cluster {
	own := *c
	own.Nodes = append([]Node(nil), c.Nodes...)
	return &own
}

// Truth is what only a simulator knows: each node's real slowdown against its
// profile in the round about to run, and the deviation of its noise. Oracles and
// training rewards read it; a policy never does.
type Truth struct {
	Slowdown []float64 // true seconds / profile seconds, without noise
	Noise    []float64 // relative standard deviation of one round's time
	Factor   []float64 // by which spikes and the noise that all micro-steps share multiply the time of the round, without a deadline
	Left     []float64 // seconds that the node still computes on older work when the round opens
	Pause    []float64 // seconds until it begins its work
	// Coming is node i's mean slowdown if it computes for so many seconds from the opening of the round, or the end of its pause, on. nil: that of Slowdown,
	// however long the round; else Slowdown is the mean over a nominal round (Pattern).
	Coming func(i int, seconds float64) float64
}
