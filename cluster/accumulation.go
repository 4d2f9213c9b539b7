package cluster

import (
	"math"
)

// MaxMicroSteps is the most micro-steps that a node takes in one round.
const MaxMicroSteps = 1 << 14

// A node works its share of a round off in micro-steps: as many full ones as fit into it,
// then at most one smaller. Its gradient is that of all of them together (gradient
// accumulation), so a share may exceed what memory holds; only a micro-step may not.

// LeastShare is the smallest share above 0: the smallest micro-batch that the node takes.
func (n *Node) LeastShare() int {
	if len(n.Shapes) > 0 {
		return n.Shapes[0]
	}
	return max(n.Least, 1)
}

// Full is the size of a full micro-step: the largest micro-batch that the node takes and
// its memory holds; 0 if there is none.
func (n *Node) Full() int { return n.floorStep(n.Limit) }

// floorStep is the largest micro-batch up to b that the node takes, 0 if there is none.
func (n *Node) floorStep(b int) int {
	b = min(b, n.Limit)
	for k := len(n.Shapes) - 1; k >= 0; k-- {
		if n.Shapes[k] <= b {
			return n.Shapes[k]
		}
	}
	if len(n.Shapes) > 0 || b < n.LeastShare() {
		return 0
	}
	return b
}

// MostShare is the largest share, at most the given number of samples.
func (n *Node) MostShare(most int) int {
	full := n.Full()
	if full < 1 {
		return 0
	}
	if full <= most/MaxMicroSteps {
		return full * MaxMicroSteps
	}
	return n.floorShare(most)
}

// floorShare is the largest share up to b: full micro-steps and at most one smaller.
func (n *Node) floorShare(b int) int {
	full := n.Full()
	if full < 1 || b < 1 {
		return 0
	}
	whole := b / full * full
	return whole + n.floorStep(b-whole)
}

// nextShare is the smallest share above b, which is one; 0 if the node takes nothing.
func (n *Node) nextShare(b int) int {
	full := n.Full()
	if full < 1 {
		return 0
	}
	whole := b / full * full
	rest := b - whole
	if len(n.Shapes) == 0 {
		return whole + min(max(rest+1, n.LeastShare()), full)
	}
	for _, s := range n.Shapes {
		if s > rest {
			return whole + min(s, full)
		}
	}
	return whole + full
}

// Takes says whether a share, 0 included, is made of micro-batches that the node takes.
func (n *Node) Takes(share int) bool { return share >= 0 && n.floorShare(share) == share }

// Steps is the number of micro-steps of a share.
func (n *Node) Steps(share int) int {
	full := n.Full()
	if full < 1 || share < 1 {
		return 0
	}
	return 1 + (share-1)/full
}

// Cost is a share in units of the profile's marginal seconds per sample, summed over its
// micro-steps. It carries the shape that was measured beforehand (constant part, floor at
// small batches, bends), so that one number per node, PerSample, remains to be estimated.
// Without a profile it is the number of samples.
func (n *Node) Cost(share int) float64 {
	if n.Profile == nil || share < 1 {
		return float64(share)
	}
	full := n.Full()
	if share <= full || full < 1 {
		return n.stepCost(share)
	}
	cost := float64(share/full) * n.stepCost(full)
	if rest := share % full; rest > 0 {
		cost += n.stepCost(rest)
	}
	return cost
}

// stepCost is the cost of one micro-step.
func (n *Node) stepCost(size int) float64 {
	if n.Profile == nil {
		return float64(size)
	}
	return n.Profile.Seconds(float64(size)) / n.Profile.PerSample()
}

// within is the largest share up to most, itself a share, whose cost is at most w.
func (n *Node) within(w float64, most int) int {
	if n.Profile == nil {
		if w >= float64(most) {
			return most
		}
		return n.floorShare(int(max(w, 0)))
	}
	full := n.Full()
	if full < 1 || !(w > 0) {
		return 0
	}
	whole := 0
	if cost := n.stepCost(full); full < most && w >= cost {
		k := math.Floor(w / cost)
		if k*float64(full) >= float64(most) {
			return most
		}
		whole = int(k) * full
		w -= k * cost
	}
	return min(whole+n.stepWithin(w, most), most)
}

// stepWithin is the largest micro-batch up to most whose cost is at most w.
func (n *Node) stepWithin(w float64, most int) int {
	b := w
	if n.Profile != nil {
		b = n.Profile.Samples(w * n.Profile.PerSample())
	}
	if b >= float64(most) {
		return n.floorStep(most)
	}
	return n.floorStep(int(b))
}

// Order is what a node is told of a round: its share, and when to stop.
type Order struct {
	Share int // samples; 0: the node takes no part
	// Deadline is when the node should have computed, in seconds from the order; 0: none,
	// the share is what it works off. With a deadline the share only says whether it works (but see Within).
	Deadline float64
	Reserve  float64 // share of the time left that the last micro-step keeps free, 0..1
	Whole    bool    // the last micro-step is not cut: full ones only
	Within   bool    // the node does not go beyond its share
	First    int     // most samples of the first micro-step under a deadline, where the pace is hardly known; 0: a full one
	Pace     float64 // seconds per unit of Node.Cost, as believed (Performance.PerSample)
	Overtime float64 // seconds of the longest micro-step after the deadline, while others are at work (Accumulation.More); 0: none
	Timeout  float64 // seconds from the order until the round ends whatever is missing; 0: never
}

// Order is node i's order in a round of the plan, once the plan's deadline is set.
func (p *Plan) Order(n *Node, i int) Order {
	o := Order{Share: p.Sizes[i], Reserve: p.Collect.Reserve, Whole: p.Collect.Whole, Within: p.Collect.Within}
	if p.Perf != nil {
		o.Pace = p.Perf[i].PerSample
	} else if n.Profile != nil {
		o.Pace = n.Profile.PerSample()
	}
	if p.Probe != nil && p.Probe[i] {
		o.First = n.LeastShare()
	}
	if p.Collect.Deadline > 0 {
		o.Deadline = max(p.Collect.Deadline.Seconds()-n.Network, 1e-9)
		o.Overtime = p.Collect.Overtime * p.Collect.Deadline.Seconds()
		if t := p.Collect.Timeout; t > 0 {
			o.Timeout = max(t.Seconds()-n.Network, 1e-9)
		}
	}
	return o
}

// DefaultReserve is the share of the time left that a node keeps free when it cuts its last
// micro-step; best on clusters of the training split (experiments/tuner/RESULTS.md).
const DefaultReserve = 0.02

// DefaultOvertime is the default of the longest micro-step after a deadline, as a share of the
// deadline. On clusters of the training split 10% to 20% are about equally good; less leaves
// slow nodes idle, and more makes the others wait for them.
const DefaultOvertime = 0.1

// Accumulation is the node's side of a round: a state machine that says how large the next
// micro-step is, from the times of those before. It reads no clock, so a client in any
// language can be tested against it.
//
// Without a deadline the node computes its share. With a deadline it takes full micro-steps
// while another one would end in time at its pace in this round; the last one is cut to end
// at the deadline. It hands in what it has: at least one micro-step.
//
//	for size := a.Next(elapsed()); size > 0; size = a.Next(elapsed()) {
//		a.Done(size, seconds of the micro-step)
//	}
type Accumulation struct {
	node    *Node
	order   Order
	samples int
	steps   int
	seconds float64 // of the micro-steps so far
	cost    float64 // of the same
	inTime  int     // samples before the first of More; 0: none was asked for
	ended   bool
}

// Begin starts the work on an order.
func (n *Node) Begin(o Order) Accumulation {
	return Accumulation{node: n, order: o, ended: o.Share < 1}
}

// Next is the size of the next micro-step, given the seconds since the order; 0: hand in
// what was accumulated.
func (a *Accumulation) Next(elapsed float64) int {
	if a.ended || a.steps >= MaxMicroSteps {
		return 0
	}
	if a.order.Deadline == 0 {
		return a.node.floorStep(a.order.Share - a.samples)
	}
	full := a.node.Full()
	if a.order.Within {
		if full = a.node.floorStep(a.order.Share - a.samples); full == 0 {
			return 0
		}
	}
	if a.order.Whole {
		full = min(full, a.order.Share)
	}
	if first := a.node.floorStep(a.order.First); a.steps == 0 && first > 0 {
		return min(first, full)
	}
	fits := a.fits(elapsed)
	if fits >= a.node.stepCost(full) {
		return full
	}
	a.ended = true
	size := 0
	if !a.order.Whole && fits > 0 {
		size = a.node.stepWithin(fits, full)
	}
	switch {
	case size > 0 || a.samples > 0:
		return size
	case a.order.Whole:
		return full
	}
	return a.node.LeastShare()
}

// fits is the cost that ends in time, at the pace of this round.
func (a *Accumulation) fits(elapsed float64) float64 {
	pace := a.order.Pace
	if a.cost > 0 {
		pace = a.seconds / a.cost
	}
	return (a.order.Deadline - elapsed) * (1 - a.order.Reserve) / pace
}

// More is the size of the next micro-step once Next has returned 0 and the deadline is over,
// while some other node is still at its last one: a stall there holds up the round anyway, and
// a sample that is computed meanwhile costs nothing. 0: none. It is the smallest micro-batch
// that the node takes, or a full one where micro-steps are whole, if that takes no
// longer than Order.Overtime at the pace of this round. So a round is delayed by one such
// micro-step at most, and has at most twice the samples that it had by the deadline.
//
//	for !done by all others() {
//		if size := a.More(elapsed()); size > 0 {
//			a.Done(size, seconds of the micro-step)
//		}
//	}
func (a *Accumulation) More(elapsed float64) int {
	o := &a.order
	if o.Within || a.steps >= MaxMicroSteps || elapsed < o.Deadline {
		return 0
	}
	if a.inTime == 0 {
		a.inTime = a.samples
	}
	size := a.node.LeastShare()
	if o.Whole {
		size = min(a.node.Full(), o.Share)
	}
	took := a.node.stepCost(size) * a.seconds / a.cost
	switch {
	case a.samples+size > 2*a.inTime, took > o.Overtime, o.Timeout > 0 && elapsed+2*took > o.Timeout:
		return 0
	}
	return size
}

// Done says that a micro-step of size samples took so many seconds.
func (a *Accumulation) Done(size int, seconds float64) {
	a.samples += size
	a.steps++
	a.seconds += seconds
	a.cost += a.node.stepCost(size)
}

// Samples is how many samples were accumulated so far, in how many micro-steps.
func (a *Accumulation) Samples() (samples, steps int) { return a.samples, a.steps }
