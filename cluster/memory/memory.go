// Package memory learns from rounds how large a micro-batch the nodes' memory holds.
//
// A node that runs out of memory gets a lower limit at once: half of the size that failed, or a larger size that
// succeeded before. The limit is raised again rarely, half of the way to the size that failed, at intervals that
// double with every failure. Once no size lies between, the size that failed is tried again, since something else may
// have used the memory. Limits do not exceed the given ones. The limit of a node that does not run out of memory stays.
//
// A Learner is a function of the reports, so a reader of a run's log learns the same limits.
package memory

import (
	"slices"

	"evenkeel/cluster"
)

const (
	firstProbe = 64   // rounds until a limit is raised the first time
	again      = 1024 // least rounds until what failed is tried again
	lastProbe  = 1 << 16
)

// Learner adjusts the limits of a cluster's nodes.
type Learner struct {
	cluster *cluster.Cluster `state:"-"`
	nodes   []node
	round   int
	here    []bool
}

// node is what is known of a node's memory.
type node struct {
	given   int // limit before a lower one was learnt; 0: none was
	good    int // largest micro-step that fitted
	failed  int // smallest micro-step that did not fit
	wait    int // rounds between probes
	next    int // round of the next probe
	probing bool
	out     bool // not even the least micro-step fits
}

// New starts from the limits of c, which it changes: no other run may use c at the same time.
func New(c *cluster.Cluster) *Learner {
	return &Learner{cluster: c, nodes: make([]node, len(c.Nodes))}
}

// Observe processes a round of shares; timed says whether it ended at a deadline, so that nodes
// could go beyond their shares.
func (l *Learner) Observe(report *cluster.Report, shares []int, timed bool) {
	l.round++
	for i := range report.Nodes {
		n, r, x := &l.nodes[i], &report.Nodes[i], &l.cluster.Nodes[i]
		step := x.Full()
		if !timed {
			step = x.MicroBatch(shares[i])
		}
		if r.TooLarge > 0 {
			step = r.TooLarge
		}
		switch {
		case r.OOM && step > 0:
			n.fail(x, step, l.round)
		case r.Status == cluster.In && r.Behind == 0:
			if r.Steps < 2 {
				step = min(step, r.Size)
			}
			n.succeed(x, step, l.round)
		}
		n.probe(x, l.round)
	}
}

// fail notes that a micro-step did not fit. A micro-step above the limit was handed out before the limit was lowered.
func (n *node) fail(x *cluster.Node, step, round int) {
	if n.given > 0 && step > x.Limit {
		return
	}
	if n.given == 0 {
		n.given = x.Limit
	}
	n.failed, n.probing = step, false
	if n.good >= step {
		n.good = 0 // what fitted before does not fit now
	}
	n.wait = min(max(2*n.wait, firstProbe), lastProbe)
	low := max(n.good, step/2)
	if n.out = low < x.LeastStep(); n.out {
		low = x.LeastStep()
		n.wait = max(n.wait, again)
	}
	x.Limit = low
	n.next = round + n.wait
}

// succeed notes that a micro-step fitted.
func (n *node) succeed(x *cluster.Node, step, round int) {
	n.good = max(n.good, step)
	if n.given == 0 || step < x.Full() {
		return
	}
	n.out = false
	if n.good >= n.failed {
		n.failed = max(min(2*n.good, n.given+1), n.good+1) // more memory is free than before
	}
	if n.probing {
		n.probing, n.next = false, round+n.wait
	}
	if x.Limit >= n.given {
		*n = node{good: n.good} // nothing to learn: the given limit fits
	}
}

// probe raises the limit when a probe is due.
func (n *node) probe(x *cluster.Node, round int) {
	if n.given == 0 || n.probing || round < n.next {
		return
	}
	if n.out {
		n.out, n.probing = false, true
		return
	}
	old := x.Full()
	x.Limit = min((x.Limit+n.failed)/2, n.given)
	if x.Full() == old { // nothing lies between what fits and what does not
		if n.wait < again {
			n.wait = again
			n.next, x.Limit = round+n.wait, old
			return
		}
		x.Limit = min(max(n.failed, nextShape(x, old)), n.given)
	}
	n.probing = true
}

// nextShape is the smallest listed micro-batch above b, 0 if there is none.
func nextShape(x *cluster.Node, b int) int {
	for _, s := range x.Shapes {
		if s > b {
			return s
		}
	}
	return 0
}

// With returns l and nodes of o, to be adopted from.
func (l *Learner) With(o *Learner, which []int) *Learner {
	both := *l
	both.nodes = slices.Clip(l.nodes)
	for _, k := range which {
		n := o.nodes[k]
		n.next += l.round - o.round
		both.nodes = append(both.nodes, n)
	}
	return &both
}

// Adopt takes over what o learnt about nodes that are in both clusters: node i of l is node from[i] of o; below 0: o does not
// have it. limits are those of o's nodes, after Settle.
func (l *Learner) Adopt(o *Learner, from, limits []int) {
	for i, k := range from {
		if k < 0 {
			continue
		}
		n, x, learnt := o.nodes[k], &l.cluster.Nodes[i], limits[k]
		if n.good = min(n.good, x.Limit); n.given == 0 || learnt >= x.Limit {
			l.nodes[i] = node{good: n.good}
			continue
		}
		n.given, n.next = x.Limit, l.round+max(n.next-o.round, 0)
		x.Limit = max(learnt, x.LeastStep())
		l.nodes[i] = n
	}
}

// Bound gives a node another limit, at least its smallest micro-batch; a lower limit that was learnt stays.
func (l *Learner) Bound(i, limit int) {
	n, x := &l.nodes[i], &l.cluster.Nodes[i]
	limit = max(limit, x.LeastStep())
	if n.given > 0 && x.Limit < limit {
		n.given = limit
		return
	}
	*n = node{good: min(n.good, limit)}
	x.Limit = limit
}

// Settle lowers limits that were raised but not tried yet to what fitted.
func (l *Learner) Settle() {
	for i := range l.nodes {
		if n, x := &l.nodes[i], &l.cluster.Nodes[i]; n.probing {
			x.Limit = max(min(x.Limit, n.good), x.LeastStep())
			n.probing = false
		}
	}
}

// Out says whether even the smallest micro-step of a node does not fit into its memory.
func (l *Learner) Out(i int) bool { return l.nodes[i].out }

// Learnt is the limit that was learnt for a node; 0: none.
func (l *Learner) Learnt(i int) int {
	if l.nodes[i].given == 0 {
		return 0
	}
	return l.cluster.Nodes[i].Limit
}

// Mask is present without the nodes that are out; valid until the next call.
func (l *Learner) Mask(present []bool) []bool {
	for i := range l.nodes {
		if !l.nodes[i].out {
			continue
		}
		l.here = append(l.here[:0], present...)
		for k := range l.here {
			l.here[k] = l.here[k] && !l.nodes[k].out
		}
		return l.here
	}
	return present
}
