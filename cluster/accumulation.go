package cluster

// Order is what a node is told about a round: its share, and when to stop.
type Order struct {
	Share int // samples; 0: the node takes no part
	// Deadline is when the node stops computing, in seconds from the order; 0: none, it computes
	// its share. With a deadline the share only says whether it takes part.
	Deadline float64
	Reserve  float64 // share of the time left that the last micro-step keeps free, 0..1
	Whole    bool    // the last micro-step is not cut: full ones only
	First    int     // largest first micro-step under a deadline, in samples, if the pace is hardly known; 0: a full one
	Pace     float64 // seconds per unit of Node.Cost, as believed (Performance.PerSample)
	Overtime float64 // seconds of the longest micro-step after the deadline, while others are at work (Accumulation.More); 0: none
	Timeout  float64 // seconds from the order until the round ends although gradients are missing; 0: it waits
}

// Order is node i's order in a round of the plan, once the plan's deadline is set.
func (p *Plan) Order(n *Node, i int) Order {
	o := Order{Share: p.Sizes[i], Reserve: p.Collect.Reserve, Whole: p.Collect.Whole}
	if p.Perf != nil {
		o.Pace = p.Perf[i].PerSample
	} else if n.Profile != nil {
		o.Pace = n.Profile.PerSample()
	}
	if p.Probe != nil && p.Probe[i] {
		o.First = n.LeastStep()
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
// micro-step. It was the best on clusters of the training split.
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
	seconds float64 // that the micro-steps so far took
	cost    float64 // of the micro-steps so far (Node.Cost)
	inTime  int     // samples before the first of More; 0: none was asked for
	ended   bool
}

// Begin starts work on an order.
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
		left := a.order.Share - a.samples
		if more := a.node.Equal - a.steps; more > 0 {
			return (left + more - 1) / more
		}
		return a.node.floorStep(left)
	}
	full := a.node.Full()
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
	return a.node.LeastStep()
}

// fits is the cost that ends in time, at the pace of this round.
func (a *Accumulation) fits(elapsed float64) float64 {
	pace := a.order.Pace
	if a.cost > 0 {
		pace = a.seconds / a.cost
	}
	return (a.order.Deadline - elapsed) * (1 - a.order.Reserve) / pace
}

// More is the size of the next micro-step once Next has returned 0 and the deadline has passed,
// while another node is still at its last one: that node holds up the round anyway, so samples
// computed meanwhile cost nothing. 0: none. It is the smallest micro-batch that the node takes,
// or a full one if micro-steps are whole, and only if it takes no longer than Order.Overtime at
// the pace of this round. The node gets at most twice the samples that it had by the deadline.
//
//	for !done by all others() {
//		if size := a.More(elapsed()); size > 0 {
//			a.Done(size, seconds of the micro-step)
//		}
//	}
func (a *Accumulation) More(elapsed float64) int {
	o := &a.order
	if a.steps >= MaxMicroSteps || elapsed < o.Deadline {
		return 0
	}
	if a.inTime == 0 {
		a.inTime = a.samples
	}
	size := a.node.LeastStep()
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

// Samples returns how many samples were accumulated so far, and in how many micro-steps.
func (a *Accumulation) Samples() (samples, steps int) { return a.samples, a.steps }
