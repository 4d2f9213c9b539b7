package agent

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/internal/stats"
)

const (
	guardRate   = 0.02 // of the moving averages
	guardRounds = 10   // judged before the network can lose its say
	guardSure   = 2    // standard errors by which its loss must be above zero
	guardWeight = 0.5  // least weight of speed: the guard judges by nothing else
)

// guard takes the decision from the network where that costs progress. It keeps what the one that does not decide would have
// handed out: the network, or the model with a belief that it alone has moved. The round shows what every node takes, and so what it would
// have brought with those sizes. The network decides only while its rounds bring no less in the mean of the last ones, beyond
// what noise explains; it gets the decision back when it would have brought no less than the model.
type guard struct {
	off     bool         // the model decides
	tracker *env.Tracker // the belief that the model alone has moved
	actions []int        // the model's on it
	perf    []cluster.Performance
	sizes   []int // of the one that does not decide, for the round under way
	pending bool  // there are such
	regret  stats.Moving
	rounds  float64
	skipped int
	ready   []cluster.Performance
	alloc   cluster.Allocator
}

// newGuard guards an agent that has observed nothing.
func newGuard(a *Agent) *guard {
	n := len(a.cluster.Nodes)
	g := &guard{tracker: a.tracker.Twin(), actions: make([]int, n), sizes: make([]int, n), perf: make([]cluster.Performance, n), ready: make([]cluster.Performance, n)}
	a.both[1] = g.tracker
	return g
}

// judge takes in a round for which the other's sizes are kept.
func (g *guard) judge(report *cluster.Report) {
	if !g.pending {
		return
	}
	g.pending = false
	regret, known := g.tracker.Regret(report, g.sizes)
	if !known {
		return
	}
	if g.off {
		regret = -regret
	}
	g.rounds++
	rate := max(guardRate, 1/g.rounds)
	g.regret.Add(regret, rate)
	switch {
	case g.off:
		g.off = g.regret.Mean > 0
	case g.rounds >= guardRounds:
		g.off = g.regret.Mean > guardSure*math.Sqrt(g.regret.Spread*rate/(2-rate))
	}
}

// decide moves the model's own belief. Where the network is not heeded it leaves the model's decision in the agent, and returns how many
// of the network's that overrules.
func (g *guard) decide(a *Agent) (overruled int) {
	g.tracker.Model(g.actions)
	g.tracker.Apply(g.actions, g.perf)
	if !a.guarded() {
		return 0
	}
	for i, k := range g.actions {
		if a.actions[i] != k {
			overruled++
		}
	}
	copy(a.actions, g.actions)
	copy(a.model, g.actions)
	a.perf, g.perf = g.perf, a.perf
	return overruled
}

// keep notes what the one that does not decide would hand out in the coming round, by its parameters in g.perf.
func (g *guard) keep(a *Agent, present []bool, plan *cluster.Plan) {
	if plan.Beyond() || a.weights[0] < guardWeight || !g.due(len(g.sizes)) {
		return
	}
	t := g.tracker
	if a.guarded() {
		t = a.tracker
	}
	t.Occupy(g.perf, g.ready)
	_, err := g.alloc.Allocate(a.cluster, present, g.ready, g.sizes)
	g.pending = err == nil
}

// due says whether the coming round is to be judged. A large fleet shows in every round what a small one does in
// many, and its second allocation would double the time of a decision.
func (g *guard) due(nodes int) bool {
	if g.skipped++; g.skipped*batchNodes < nodes {
		return false
	}
	g.skipped = 0
	return true
}
