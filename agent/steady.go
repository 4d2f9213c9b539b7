package agent

import (
	"math"
	"slices"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/internal/stats"
)

const (
	steadyGain     = 0.05 // rate of a node's averages
	steadyOutlier  = 4.0  // deviations, beyond which a time counts as one at that distance
	leastDeviation = 1e-3
	steadyNodes    = 256  // above so many, not every round is judged
	steadyRate     = 0.05 // of the moving average of what steady shares bring
	steadyRounds   = 20   // judged rounds before they may decide
	steadySure     = 2.0  // standard errors by which they must bring more to take over; they hand back when they bring less
)

// steady hands out shares by every node's average pace, with a margin for all that its times vary, slow spells included. Where
// many nodes have short spells often, following each costs more than leaving room for any. So it decides while its shares would
// have brought more progress than the agent's usual ones, which every round shows.
type steady struct {
	on      bool // its shares brought more
	decided bool // it made the last decision
	nodes   []average
	shares  []int        // of the coming round
	usual   []int        // the agent's, likewise; in both env.AsIs where one side gives none
	pending bool         // both are known
	gain    stats.Moving // progress per round that its shares bring over the usual ones
	rounds  float64
	pace    pace
	perf    []cluster.Performance `state:"-"`
	ready   []cluster.Performance `state:"-"` // perf plus the time that older work still takes
	fresh   []int                 `state:"-"`
	finish  float64               `state:"-"` // predicted, seconds
	alloc   cluster.Allocator
}

// average is a node's slowdown and its relative variance, as moving averages.
type average struct{ slowdown, variance, count float64 }

func newSteady(nodes int) *steady {
	return &steady{
		nodes: make([]average, nodes), shares: make([]int, nodes), usual: make([]int, nodes), fresh: make([]int, nodes),
		perf: make([]cluster.Performance, nodes), ready: make([]cluster.Performance, nodes),
	}
}

// observe judges a round if it may, and takes in its times.
func (s *steady) observe(a *Agent, report *cluster.Report) {
	t := a.tracker
	if s.pending && s.judged(a) {
		by := t.Rule()
		if gain, known := t.Regret(report, env.Play{Shares: s.usual, Rule: by}, env.Play{Shares: s.shares, Rule: by}); known {
			s.judge(gain)
		}
	}
	s.pending = false
	for i := range s.nodes {
		if report.Nodes[i].Measured() {
			s.nodes[i].add(t.Newest(i))
		}
	}
}

// judged says whether steady shares may decide: where all nodes are waited for.
func (s *steady) judged(a *Agent) bool { return a.judged() && a.tracker.Waits() }

func (s *steady) judge(gain float64) {
	s.rounds++
	rate := max(steadyRate, 1/s.rounds)
	s.gain.Add(gain, rate)
	if s.on {
		s.on = s.gain.Mean > 0
	} else {
		s.on = s.rounds >= steadyRounds && s.gain.Mean > steadySure*s.gain.Error(rate)
	}
}

func (n *average) add(slowdown float64) {
	if n.count++; n.count == 1 {
		n.slowdown = slowdown
		return
	}
	off := slowdown/n.slowdown - 1
	if n.count > 2 {
		most := steadyOutlier * math.Sqrt(n.variance)
		off = min(max(off, -most), most)
	}
	n.variance += max(steadyGain, 1/(n.count-1)) * (off*off - n.variance)
	n.variance = max(n.variance, leastDeviation*leastDeviation)
	n.slowdown += steadyGain * (slowdown - n.slowdown)
}

// plan computes the shares of the coming round, whose usual ones are a.fresh, and says whether they decide.
func (s *steady) plan(a *Agent, present []bool) bool {
	if s.decided = false; !s.judged(a) {
		return false
	}
	due, t := s.pace.due(len(s.nodes), steadyNodes), a.tracker
	if !due && !s.on {
		return false
	}
	for i := range s.nodes {
		s.perf[i] = a.perf[i]
		if n := &s.nodes[i]; n.count > 2 {
			s.perf[i] = t.At(i, n.slowdown*(1+t.Spread()*math.Sqrt(n.variance)))
		}
	}
	t.Occupy(s.perf, s.ready)
	var err error
	if s.finish, err = s.alloc.Allocate(a.cluster, present, s.ready, s.fresh); err != nil {
		return false
	}
	copy(s.shares, s.fresh)
	copy(s.usual, a.fresh)
	for i := range s.shares {
		if s.shares[i] == 0 && s.usual[i] > 0 { // it recovered, and would never be measured again
			s.nodes[i] = average{}
			return false
		}
		if s.shares[i] == 0 || s.usual[i] == 0 { // participation may try the node
			s.shares[i], s.usual[i] = env.AsIs, env.AsIs
		}
	}
	s.pending, s.decided = due, s.on
	return s.on
}

// adopt takes over what o knows; node i of s is node from[i] of o, below 0: o does not have it.
func (s *steady) adopt(o *steady, from []int) {
	for i, k := range from {
		if k >= 0 {
			s.nodes[i] = o.nodes[k]
		}
	}
	s.on, s.gain, s.rounds = o.on, o.gain, o.rounds
}

// with returns s and nodes of o, to be adopted from.
func (s *steady) with(o *steady, which []int) *steady {
	both := *s
	both.nodes = slices.Clip(s.nodes)
	for _, k := range which {
		both.nodes = append(both.nodes, o.nodes[k])
	}
	return &both
}
