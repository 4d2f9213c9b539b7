package agent

import (
	"cmp"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/internal/stats"
)

const (
	guardRate   = 0.02 // rate of the moving averages
	guardRounds = 5    // judged rounds before the network may decide
	guardSure   = 1    // standard errors by which the network must be better to take over, and worse to hand back
	guardWeight = 0.5  // least weight of speed with which the guard works: it judges nothing else
)

// guard takes the decision from the network where the network costs progress. Two controllers run side by side: the
// network, and the model with a belief of its own. One of them decides; the guard keeps the shares that the other one, the
// idle controller, would have handed out. Every round shows how long each node takes, and so how much progress the idle
// controller's shares would have brought; where the policy chooses the round's rule, under the idle controller's rule. The
// model decides until the network would have brought more progress, on average over the last rounds, and again when the
// network has brought less, each time by more than a standard error (docs/decisions/0047-two-controllers.md).
type guard struct {
	off     bool         // the model decides
	tracker *env.Tracker // the model's belief, which the network does not move
	actions []int        // the model's actions by this belief
	perf    []cluster.Performance
	decided []int        // deciding controller's shares for the coming round, before the dead band and trials; 0 becomes env.AsIs
	instead []int        // idle controller's shares, likewise
	pending bool         // both are known
	regret  stats.Moving // progress per round that the network's decisions cost
	rounds  float64
	pace    pace
	ready   []cluster.Performance
	alloc   cluster.Allocator
}

// newGuard returns the guard of an agent that has observed nothing.
func newGuard(a *Agent) *guard {
	n := len(a.cluster.Nodes)
	g := &guard{off: true, tracker: env.NewTracker(a.cluster), actions: make([]int, n), instead: make([]int, n), perf: make([]cluster.Performance, n), ready: make([]cluster.Performance, n)}
	g.tracker.Blind() // what the agent foresees holds for both
	a.both[1] = g.tracker
	return g
}

// would returns the idle controller's shares for the reported round; nil: they are not known.
func (g *guard) would() []int {
	if !g.pending {
		return nil
	}
	return g.instead
}

// judge compares both controllers by a round, if the shares of both are known. network is the network's tracker.
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
	sure := guardSure * g.regret.Error(rate)
	switch {
	case g.rounds < guardRounds:
	case g.off:
		g.off = g.regret.Mean > -sure
	default:
		g.off = g.regret.Mean > sure
	}
}

// decide updates the model's belief. If the model decides, it gives its actions to the agent, and returns the number of the
// network's actions that differ.
func (g *guard) decide(a *Agent) (overruled int) {
	g.tracker.Model(g.actions)
	a.tracker.Recall(g.actions)
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

// first notes that both controllers have the same shares in the first round.
func (g *guard) first(a *Agent) {
	copy(g.instead, a.fresh)
	g.pending = a.judged()
}

// given notes the deciding controller's shares. A node without a share may still work, because participation may try it.
func (g *guard) given(shares []int) {
	g.decided = append(g.decided[:0], shares...)
	for i, b := range shares {
		if b == 0 {
			g.decided[i] = env.AsIs
			g.instead[i] = cmp.Or(g.instead[i], env.AsIs)
		}
	}
}

// keep computes the idle controller's shares for the coming round from its parameters, g.perf.
func (g *guard) keep(a *Agent, present []bool) {
	if !a.judged() || !g.pace.due(len(g.instead), batchNodes) {
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

// pace is how often shares that another controller would hand out are computed and judged.
type pace struct{ skipped int }

// due says whether to judge the coming round: with more nodes than most, less often. One round of a large cluster shows as much as
// many rounds of a small one, and the second allocation would double the time of a decision.
func (p *pace) due(nodes, most int) bool {
	if p.skipped++; p.skipped*most < nodes {
		return false
	}
	p.skipped = 0
	return true
}
