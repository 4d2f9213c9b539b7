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
	guardSure   = 3    // standard errors by which its loss must be above zero
	guardWeight = 0.5  // least weight of speed: the guard judges by nothing else
)

// guard takes the decision from the network where that costs speed. In every round in which network and
// model differ it keeps what the one that does not decide would have handed out. The round
// shows what every node takes, and so how long it would have lasted with those sizes. The network decides only
// while its rounds are not longer in the mean of the last ones, beyond what noise explains; it gets
// the decision back when it would have been no slower than the model.
type guard struct {
	off     bool  // the model decides
	sizes   []int // of the one that does not decide, for the round under way
	pending bool  // there are such
	regret  stats.Moving
	rounds  float64
	skipped int
	ready   []cluster.Performance
	alloc   cluster.Allocator
}

// judge takes in a round for which the other's sizes are kept.
func (g *guard) judge(t *env.Tracker, report *cluster.Report) {
	if !g.pending {
		return
	}
	g.pending = false
	took, would := 0.0, 0.0
	for i, size := range g.sizes {
		r := &report.Nodes[i]
		if r.Status == cluster.Late || r.Status == cluster.Lost || r.Behind > 0 || !r.Measured() && size > 0 {
			return // not seen whole
		}
		if r.Measured() {
			took = max(took, r.Seconds)
			would = max(would, t.Seconds(i, r, size))
		}
	}
	if took <= 0 || would <= 0 {
		return
	}
	regret := math.Log(took / would)
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

// keep notes what the one that does not decide would hand out in the coming round, by its
// parameters in g.ready.
func (g *guard) keep(c *cluster.Cluster, present []bool) {
	if g.sizes == nil {
		g.sizes = make([]int, len(c.Nodes))
	}
	_, err := g.alloc.Allocate(c, present, g.ready, g.sizes)
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

// decide leaves the actions of the one that decides in a.actions, and keeps the other's parameters.
func (a *Agent) decide(plan *cluster.Plan) (kept bool) {
	differ := 0
	for i, k := range a.actions {
		if k != a.model[i] {
			differ++
		}
	}
	if differ == 0 || a.weights[0] < guardWeight {
		return false
	}
	other := a.model
	if a.guard.off {
		a.Fallbacks += differ
		a.other = append(a.other[:0], a.actions...)
		copy(a.actions, a.model)
		other = a.other
	}
	if plan.Beyond() || a.tracker.Rule().Quorum < 1 || !a.guard.due(len(a.actions)) {
		return false
	}
	a.guard.ready = a.tracker.Foresee(other, a.guard.ready)
	return true
}
