package cluster

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Collect says how a round collects gradients. The zero value waits for every node. Target
// nodes, as the patent calls them, are those whose gradients are missing when the quorum is complete.
type Collect struct {
	Quorum       Quorum        `json:"quorum"`           // gradients to wait for; zero: all
	Grace        time.Duration `json:"grace_ns"`         // how long to wait for the target nodes once the quorum is in; >= 0
	GraceShare   float64       `json:"grace_share"`      // the same as a share of the time the quorum took; >= 0, added to Grace
	MaxStaleness time.Duration `json:"max_staleness_ns"` // age from which a target node's or an older gradient is refused; zero: no bound
	Timeout      time.Duration `json:"timeout_ns"`       // the round ends after this even if gradients are missing, and silent nodes count as lost; zero: no timeout
	// A deadline ends the nodes' work rather than the round: each hands in what it has
	// accumulated until then (Accumulation), and the round waits for all that the quorum asks for.
	Deadline      time.Duration `json:"deadline_ns,omitzero"`    // from the opening to the arrival of the gradients; > 0, zero: none
	DeadlineShare float64       `json:"deadline_share,omitzero"` // the same as a share of the predicted finish time, where Deadline is zero; zero: none
	TimeoutShare  float64       `json:"timeout_share,omitzero"`  // Timeout as a share of the deadline, where Timeout is zero; above 1, zero: none
	AutoDeadline  bool          `json:"auto_deadline,omitzero"`  // the controller sets Deadline for every round
	Reserve       float64       `json:"reserve,omitzero"`        // share of the time left that the last micro-step keeps free, 0..1
	Overtime      float64       `json:"overtime,omitzero"`       // longest micro-step after the deadline, while others are at work, as a share of it; zero: none
	Whole         bool          `json:"whole_steps,omitzero"`    // the last micro-step is not cut
}

// Timed says whether rounds end by a deadline.
func (c *Collect) Timed() bool { return c.Deadline > 0 || c.DeadlineShare > 0 || c.AutoDeadline }

// WithoutDeadline returns c with rounds that wait for the shares.
func (c Collect) WithoutDeadline() Collect {
	c.Deadline, c.DeadlineShare, c.TimeoutShare, c.AutoDeadline, c.Reserve, c.Overtime, c.Whole = 0, 0, 0, false, 0, 0, false
	return c
}

// Quorum is a number of nodes, or a share of those that take part. The zero value
// means all of them.
type Quorum struct {
	Count int     `json:"count"` // 1..N; zero: use Share
	Share float64 `json:"share"` // (0, 1]; rounded up to whole nodes; zero: all
	// Without is the number of nodes that take part but have been silent for long. Share is a
	// share of the others.
	Without int `json:"without,omitzero"`
}

// Of is the number of gradients to wait for among n nodes.
func (q Quorum) Of(n int) int {
	switch {
	case q.Count > 0:
		return min(q.Count, n)
	case q.Share > 0:
		// The nudge keeps 0.7 of 10 at 7 in spite of rounding.
		k := int(q.Share*float64(max(n-q.Without, 1)) - 1e-9)
		return min(k+1, n)
	}
	return n
}

// Verdict is what a round does with a gradient. Zero: nothing, the round is over and the
// gradient is the next one's.
type Verdict uint8

const (
	Fresh Verdict = iota + 1 // accepted, computed on this round's model
	Aged                     // accepted, computed on an older model
	Stale                    // refused: its age reached the staleness bound
)

func (v Verdict) String() string {
	return [...]string{"none", "fresh", "aged", "stale"}[v]
}

// collection is the rule by which one round collects gradients, as a state machine fed
// with what happens, in the order of time: the patent's steps 3 and 4. It ends
//
//   - at once, when no node is left that could still deliver,
//   - the grace duration after the quorum was complete,
//   - at the timeout,
//
// whichever comes first; what arrives up to and including that moment counts. Times
// count from any fixed origin. Create it with Collect.open; it is a plain value. A
// Recorder feeds it.
type collection struct {
	collect  Collect
	opened   time.Duration
	expected int // nodes that may still deliver, or have
	in       int // gradients of this round's work that were accepted
	missed   int // nodes whose work for this round was refused as stale
	quorum   bool
	graceEnd time.Duration // end of the grace duration, once the quorum is complete
	end      time.Duration
	closed   bool
}

// open starts a round at time now, with the model of time now, for expected nodes.
func (c Collect) open(now time.Duration, expected int) collection {
	r := collection{collect: c, opened: now, expected: expected}
	r.check(now)
	return r
}

// receive judges a gradient that arrives at time now, while the round is open, and was
// computed on the model of time model, this round's if current. Work for this round that
// arrives before the quorum is complete is taken whatever its age. Any other gradient is
// taken if its age, now - model, is below the
// staleness bound; the quorum counts only this round's work
// (docs/decisions/0006-quorum-of-this-round.md).
func (r *collection) receive(now, model time.Duration, current bool) Verdict {
	inTime := current && !r.quorum
	if !inTime && r.collect.MaxStaleness > 0 && now-model >= r.collect.MaxStaleness {
		if current {
			r.missed++
		}
		r.check(now)
		return Stale
	}
	if current {
		r.in++
	}
	r.check(now)
	if current {
		return Fresh
	}
	return Aged
}

// lose removes a node that failed at time now, while the round is open and before its
// work for this round was in.
func (r *collection) lose(now time.Duration) {
	r.expected--
	r.check(now)
}

// limit is the time at which the round closes if nothing more arrives, false if it
// would wait for ever.
func (r *collection) limit() (time.Duration, bool) {
	if r.collect.Timeout > 0 {
		if timeout := later(r.opened, r.collect.Timeout); !r.quorum || timeout < r.graceEnd {
			return timeout, true
		}
	}
	return r.graceEnd, r.quorum
}

func (r *collection) close(at time.Duration) { r.closed, r.end = true, at }

// check completes the quorum and closes the round when no node is missing.
func (r *collection) check(now time.Duration) {
	if !r.quorum && r.in >= r.collect.Quorum.Of(r.expected) {
		r.quorum = true
		share := r.collect.GraceShare * float64(now-r.opened)
		r.graceEnd = later(later(now, r.collect.Grace), time.Duration(min(share, math.MaxInt64/2)))
	}
	if r.in >= r.expected-r.missed {
		r.close(now)
	}
}

// later is t + d, at the end of the clock rather than beyond it; d below zero counts as 0.
func later(t, d time.Duration) time.Duration {
	return t + max(0, min(d, math.MaxInt64-t))
}

// Quorums and Graces are the values from which a policy may choose a round rule: shares
// of the nodes, and shares of the time that the quorum took.
var (
	Quorums = []float64{0.5, 0.7, 0.8, 0.9, 0.95, 1}
	Graces  = []float64{0, 0.03, 0.06, 0.1, 0.2, 0.4}
)

// Rule is a choice of quorum and grace.
type Rule struct {
	Quorum float64 // share of the nodes, (0, 1]
	Grace  float64 // share of the quorum's time, >= 0; means nothing where the quorum is 1
}

// Rules are all the combinations of Quorums and Graces; the last rule waits for all nodes.
var Rules = func() []Rule {
	var all []Rule
	for _, q := range Quorums {
		for _, g := range Graces {
			if q < 1 {
				all = append(all, Rule{q, g})
			}
		}
	}
	return append(all, Rule{Quorum: 1})
}()

// String is "quorum 80% +3%", or "quorum all".
func (r Rule) String() string {
	percent := func(v float64) string { return strconv.FormatFloat(100*v, 'g', 6, 64) + "%" }
	switch {
	case r.Quorum == 1:
		return "quorum all"
	case r.Grace > 0:
		return "quorum " + percent(r.Quorum) + " +" + percent(r.Grace)
	}
	return "quorum " + percent(r.Quorum)
}

// Apply returns c with the rule's quorum and grace; staleness bound and timeout stay.
func (r Rule) Apply(c Collect) Collect {
	c.Quorum, c.Grace, c.GraceShare = Quorum{Share: r.Quorum}, 0, r.Grace
	return c
}

// Choices is what a policy may choose beside the sizes. With the zero value, the cluster's
// Collect and GlobalBatch are fixed.
type Choices struct {
	Quorum []float64 // of Quorums; none: the rule of Collect is fixed
	Grace  []float64 // of Graces; none: 0
	// LeastBatch and MostBatch bound the global batch, in samples; both 0: it is fixed.
	LeastBatch, MostBatch int
}

// Rules are the indices into Rules that may be chosen, none where the rule is fixed.
func (c *Choices) Rules() []int {
	var allowed []int
	for i, r := range Rules {
		if slices.Contains(c.Quorum, r.Quorum) && (r.Quorum == 1 || slices.Contains(c.Grace, r.Grace) || len(c.Grace) == 0 && r.Grace == 0) {
			allowed = append(allowed, i)
		}
	}
	return allowed
}
