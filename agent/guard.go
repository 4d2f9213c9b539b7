package agent

import (
	"math"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/internal/stats"
)

const (
	guardRate   = 0.02 // of the moving averages
	guardRounds = 5    // judged before the network has a say
	guardSure   = 1    // standard errors by which it must be better to get it, and worse to lose it
	guardWeight = 0.5  // least weight of speed: the guard judges by nothing else
)

// guard takes the decision from the network where that costs progress. Two controllers run side by side: the network, and the
// model with a belief of its own. One decides; the guard keeps the shares that the idle one would have handed out. Every round
// shows how long each node takes, and so what the idle controller's shares would have brought, under its own rule where rules are
// free. The model decides until the network would have brought more in the mean of the last rounds, and again when the network
// has brought less, each time beyond a standard error (docs/decisions/0047-two-controllers.md).
type guard struct {
	off     bool         // the model decides
	tracker *env.Tracker // the model's belief, which the network does not move
	actions []int        // the model's actions on it
	perf    []cluster.Performance
	decided []int        // shares of the deciding controller for the coming round, before the dead band and trials; env.AsIs for none
	instead []int        // shares of the idle controller, the same way
	pending bool         // both are known
	regret  stats.Moving // progress that deciding by the network costs, per round
	rounds  float64
	skipped int
	ready   []cluster.Performance
	alloc   cluster.Allocator
}

// newGuard guards an agent that has observed nothing.
func newGuard(a *Agent) *guard {
	n := len(a.cluster.Nodes)
	g := &guard{off: true, tracker: env.NewTracker(a.cluster), actions: make([]int, n), instead: make([]int, n), perf: make([]cluster.Performance, n), ready: make([]cluster.Performance, n)}
	a.both[1] = g.tracker
	return g
}

// would returns the shares that the idle controller would have handed out in the reported round; nil: they are not known.
func (g *guard) would() []int {
	if !g.pending {
		return nil
	}
	return g.instead
}

// judge takes in a round for which both controllers' shares are known. network is the tracker that the network moves.
func (g *guard) judge(report *cluster.Report, network *env.Tracker) {
	if !g.pending {
		return
	}
	g.pending = false
	decided, instead := env.Play{Shares: g.decided, Rule: network.Rule()}, env.Play{Shares: g.instead, Rule: g.tracker.Rule()}
	if g.off {
		decided.Rule, instead.Rule = instead.Rule, decided.Rule
	}
	regret, known := g.tracker.Regret(report, decided, instead)
	if !known {
		return
	}
	if g.off {
		regret = -regret
	}
	g.rounds++
	rate := max(guardRate, 1/g.rounds)
	g.regret.Add(regret, rate)
	sure := guardSure * math.Sqrt(g.regret.Spread*rate/(2-rate))
	switch {
	case g.rounds < guardRounds:
	case g.off:
		g.off = g.regret.Mean > -sure
	default:
		g.off = g.regret.Mean > sure
	}
}

// decide moves the model's own belief. Where the model decides, it puts the model's actions into the agent and returns how many of
// the network's they replace.
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

// first notes that both controllers hand out the same shares in the first round.
func (g *guard) first(a *Agent) {
	copy(g.instead, a.fresh)
	g.pending = a.judged()
}

// given notes the shares of the deciding controller. A node without one may still work: participation may try it.
func (g *guard) given(shares []int) {
	g.decided = append(g.decided[:0], shares...)
	for i, b := range shares {
		if b == 0 {
			g.decided[i] = env.AsIs
			if g.instead[i] == 0 {
				g.instead[i] = env.AsIs
			}
		}
	}
}

// keep notes what the idle controller would hand out in the coming round, by its parameters in g.perf.
func (g *guard) keep(a *Agent, present []bool) {
	if !a.judged() || !g.due(len(g.instead)) {
		return
	}
	t := g.tracker
	if a.guarded() {
		t = a.tracker
	}
	t.Occupy(g.perf, g.ready)
	_, err := g.alloc.Allocate(a.cluster, present, g.ready, g.instead)
	g.pending = err == nil
}

// due says whether the coming round is to be judged. A large fleet is judged less often: one of its rounds shows as much as
// many of a small one, and the second allocation would double the time of a decision.
func (g *guard) due(nodes int) bool {
	if g.skipped++; g.skipped*batchNodes < nodes {
		return false
	}
	g.skipped = 0
	return true
}
