package cluster

import "time"

// Recorder makes the reports of a run from its events: shares that were handed out,
// gradients that arrived, nodes that were lost. It applies the round rule to them, so
// that a Runner needs neither the rule nor the details of a Report; the simulator uses
// it too. See the example of NewRecorder for a whole Runner.
//
// For every round: Open, HandOut while Waiting says so, Receive and Lose as things
// happen, until Closed (Expire ends the wait at the Limit); then Report.
//
// Times are arguments. They count from any fixed origin and do not decrease from one
// event to the next. Only these times matter, not when the methods are called.
type Recorder struct {
	nodes      []Node `state:"-"`
	collection collection
	shares     []Share
	states     []nodeState
	report     Report
	settled    bool // the report is complete
}

// nodeState is what a Recorder knows of a node beside its share.
type nodeState struct {
	busy bool          // at its share
	done bool          // delivered or lost its share of the open round
	free time.Duration // when it was last without work
}

// Share is a node's part of a round: what it was handed.
type Share struct {
	Size  int           // samples
	Round int           // in which it was handed out
	Model time.Duration // when that round opened: the time of the model it is computed on
	Start time.Duration // when it was handed out
}

// Gradient is what a node hands in. Samples is required.
type Gradient struct {
	Samples int // those of the share, or what was done until the deadline
	Steps   int // micro-steps
	// Seconds from hand-out to arrival, and Age, as the node measured them; 0: computed from
	// the times of the events.
	Seconds, Age float64
	// Norm and Agree as in NodeReport. Where they are known only after the aggregation,
	// set them in the Report.
	Norm, Agree float64
	Pause       float64 // as in NodeReport
}

// NewRecorder records rounds of c; it reads the number of nodes and their power.
func NewRecorder(c *Cluster) *Recorder {
	n := len(c.Nodes)
	return &Recorder{nodes: c.Nodes, shares: make([]Share, n), states: make([]nodeState, n), report: Report{Nodes: make([]NodeReport, n)}}
}

// Open begins a round at time now, collected by the given rule. present says which nodes
// take part (nil: all). Rounds are numbered upwards; a number that is left out counts as
// an update of the model like any other.
func (r *Recorder) Open(round int, now time.Duration, collect Collect, present []bool) {
	expected := 0
	r.report = Report{Round: round, Start: now, Nodes: r.report.Nodes}
	for i := range r.states {
		r.report.Nodes[i] = NodeReport{}
		r.states[i].done = false
		if present == nil || present[i] {
			r.report.Nodes[i].Status = Late // until its gradient is in
			expected++
		}
	}
	r.collection, r.settled = collect.open(now, expected), false
	r.settle()
}

// Waiting says whether the open round has work for the node: it takes part, has had no
// share of this round, and is not at an older one.
func (r *Recorder) Waiting(node int) bool {
	s := &r.states[node]
	return !r.collection.closed && r.report.Nodes[node].Status != Absent && !s.busy && !s.done
}

// HandOut gives a node a share of the open round at time now. A node that is not Waiting
// keeps what it has.
func (r *Recorder) HandOut(node, size int, now time.Duration) {
	if r.Waiting(node) {
		r.shares[node] = Share{Size: size, Round: r.report.Round, Model: r.report.Start, Start: now}
		r.states[node].busy = true
	}
}

// Share is the share that a node is working on; its last one and false if it has no work.
func (r *Recorder) Share(node int) (Share, bool) { return r.shares[node], r.states[node].busy }

// Receive processes a node's gradient at time now and returns what the round does with it.
// The zero Verdict means that nothing was done: either the round was over, and the gradient
// belongs to the next round, after its Open; or the node had no work. After an Aged or Stale
// gradient of an older round the node is Waiting for its share of this round.
func (r *Recorder) Receive(node int, now time.Duration, g Gradient) Verdict {
	share, state, n := r.shares[node], &r.states[node], &r.report.Nodes[node]
	if !state.busy || r.over(now) {
		return 0
	}
	current := share.Round == r.report.Round
	verdict := r.collection.receive(now, share.Model, current)
	state.busy, state.done, state.free = false, current, now
	n.Size, n.Behind, n.Norm, n.Agree = g.Samples, r.report.Round-share.Round, g.Norm, g.Agree
	n.Seconds, n.Age, n.Steps, n.Pause = g.Seconds, g.Age, 0, g.Pause
	if g.Steps > 1 {
		n.Steps = g.Steps
	}
	if n.Seconds == 0 {
		n.Seconds = (now - share.Start).Seconds()
	}
	if n.Age == 0 {
		n.Age = (now - share.Model).Seconds()
	}
	if verdict == Stale {
		if n.Status != In {
			n.Status = Refused
		}
	} else {
		n.Status = In
		n.Samples += g.Samples
		r.report.Accepted += g.Samples
		r.report.Counted += float64(g.Samples) * Credit(n.Behind)
		if verdict == Aged {
			n.Aged += g.Samples
		}
	}
	r.settle()
	return verdict
}

// Lose removes a node that failed at time now, with its work; oom says that the share did
// not fit into its memory. If the node's gradient of this round is already in, it counts.
func (r *Recorder) Lose(node int, now time.Duration, oom bool) {
	state, n := &r.states[node], &r.report.Nodes[node]
	over := r.over(now)
	if !over && n.Status != Absent && !state.done {
		r.collection.lose(now)
		n.Status, n.OOM = Lost, oom
		state.done, state.free = true, now
	}
	if state.busy {
		state.busy, state.free = false, now
	}
	r.settle()
}

// Limit is the time at which the round closes if nothing more arrives: the end of the grace
// duration or the timeout, not Collect.Deadline. False: it waits for ever.
func (r *Recorder) Limit() (time.Duration, bool) { return r.collection.limit() }

// Expire closes the round at its Limit, if it has one. Nodes that were silent until a
// timeout are lost, with their work.
func (r *Recorder) Expire() {
	limit, limited := r.collection.limit()
	if !limited || r.collection.closed {
		return
	}
	r.collection.close(limit)
	// At the end of the grace duration late nodes go on.
	if t := r.collection.collect.Timeout; t > 0 && limit-r.report.Start >= t {
		for i := range r.states {
			if s := &r.states[i]; s.busy && r.report.Nodes[i].Status == Late {
				r.report.Nodes[i].Status = Lost
				s.busy, s.done, s.free = false, true, limit
			}
		}
	}
	r.settle()
}

// Close ends the round at time now even if gradients are missing: for a trainer that ends
// its rounds itself. It does nothing if the round is over.
func (r *Recorder) Close(now time.Duration) {
	if !r.over(now) {
		r.collection.close(now)
		r.settle()
	}
}

// Closed reports whether the round is over, and since when.
func (r *Recorder) Closed() (time.Duration, bool) { return r.collection.end, r.collection.closed }

// over expires the round if its limit lies before now.
func (r *Recorder) over(now time.Duration) bool {
	if t, limited := r.collection.limit(); limited && now > t {
		r.Expire()
	}
	return r.collection.closed
}

// Report is the report of the round once it is closed; before, what is known so far. It
// stays valid until the next Open.
func (r *Recorder) Report() *Report { return &r.report }

// settle completes the report of a round that has closed.
func (r *Recorder) settle() {
	end, closed := r.Closed()
	if !closed || r.settled {
		return
	}
	r.settled = true
	r.report.Wait = end - r.report.Start
	for i := range r.report.Nodes {
		n, state, share := &r.report.Nodes[i], &r.states[i], &r.shares[i]
		if n.Status == Absent {
			continue
		}
		if state.busy {
			n.Busy, n.BusySize = (end - share.Start).Seconds(), share.Size
			if n.Status == Late {
				n.Size, n.Seconds = n.BusySize, n.Busy
			}
		} else if n.Status == In || n.Status == Refused {
			n.Idle = (end - state.free).Seconds()
		}
		n.Joules = r.nodes[i].Power.Joules(r.worked(i, end).Seconds(), r.report.Wait.Seconds())
	}
}

// worked is how long a node was at work in the round that ended: from the opening until its
// newest event, because this round's work follows an older round's at once. A hanging node
// counts as working until it is noticed.
//
// NodeReport.Idle would not do: it leaves out the idle time of a lost node.
func (r *Recorder) worked(node int, end time.Duration) time.Duration {
	until := end
	if s := &r.states[node]; !s.busy {
		until = min(s.free, end)
	}
	return max(until-r.report.Start, 0)
}
