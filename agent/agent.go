package agent

import (
	"evenkeel/cluster"
	"evenkeel/env"
)

// Agent is the Double-DQN policy. For every node it chooses how far to trust the newest measurement and how large a safety
// margin to leave for noise (the method's step 5). It allocates by the resulting performance parameters (step 6). If the
// cluster leaves quorum and grace to the policy, it also chooses the round's rule. It implements Policy.
type Agent struct {
	trained *Trained         `state:"-"`
	cluster *cluster.Cluster `state:"-"`
	tracker *env.Tracker
	both    [2]*env.Tracker `state:"-"` // tracker, and the guard's
	values  *values         `state:"-"` // of the network; nil: only the model decides
	allowed []int           // rules to choose from; none: the rule is fixed
	rule    int             // the last one chosen; -1: none yet
	weights [env.Objectives]float64
	rows    []float32 `state:"-"` // the network's input, working memory
	actions []int
	model   []int
	guard   *guard // nil without a network
	steady  *steady
	perf    []cluster.Performance
	ready   []cluster.Performance // perf plus the time that older work still takes
	fresh   []int                 // allocation by the newest parameters
	alloc   cluster.Allocator
	dead    deadBand
	bounds  bounds   `state:"-"` // of the network's input
	batch   *batcher // nil: the global batch is fixed
	seen    seen     // for Explain

	// Decisions counts the decisions about nodes. Fallbacks counts those that the model made because the network's input was
	// out of range or because the guard overruled the network.
	Fallbacks, Decisions int
}

// NewAgent returns the policy for c. weights are the objectives' (cluster.Objectives).
func (t *Trained) NewAgent(c *cluster.Cluster, weights [env.Objectives]float64) *Agent {
	a := NewModel(c)
	a.trained, a.weights, a.values = t, weights, &values{network: t.Network}
	a.bounds, a.guard = newBounds(t.Record.Low, t.Record.High), newGuard(a)
	return a
}

// NewModel returns the agent's fallback rule: the model's updates, without a network. A comparison with it shows what the
// network adds.
func NewModel(c *cluster.Cluster) *Agent {
	n, batch := len(c.Nodes), newBatcher(c)
	if batch != nil {
		own := *c // its global batch changes
		c = &own
	}
	a := &Agent{
		batch: batch, cluster: c, tracker: env.NewTracker(c), weights: [env.Objectives]float64{1},
		allowed: c.Choices.Rules(), rule: -1,
		actions: make([]int, n), model: make([]int, n), perf: c.Nominal(), ready: make([]cluster.Performance, n), fresh: make([]int, n),
		steady: newSteady(n),
	}
	a.both[0] = a.tracker
	return a
}

// NewReactive returns the fallback rule without foresight. A comparison with it shows what foresight adds.
func NewReactive(c *cluster.Cluster) *Agent {
	a := NewModel(c)
	a.tracker.Blind()
	return a
}

// Decide implements Policy.
func (a *Agent) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	a.seen.note(a, report, plan.Sizes)
	a.observe(report)
	if report == nil {
		a.first(present, plan)
	} else {
		a.collect(present, plan)
		a.tracker.Model(a.model)
		a.tracker.Recall(a.model)
		copy(a.actions, a.model)
		if a.values != nil {
			a.rows = a.tracker.Rows(a.rows, a.weights)
			a.values.score(a.rows, a.weights)
			a.choose()
		}
		a.tracker.Apply(a.actions, a.perf)
		if a.guard != nil {
			a.Fallbacks += a.guard.decide(a)
			a.tracker.Prepare(a.perf, a.guard.perf)
		} else {
			a.tracker.Prepare(a.perf)
		}
		if a.batch != nil {
			a.cluster.GlobalBatch = a.batch.choose(a.cluster, present, a.perf, a.tracker.NoiseScale())
		}
		if a.guard != nil {
			a.guard.keep(a, present)
		}
	}
	a.believes().Occupy(a.perf, a.ready)
	finish, err := a.alloc.Allocate(a.cluster, present, a.ready, a.fresh)
	if err != nil {
		return err
	}
	shares := a.fresh
	if report != nil && a.steady.plan(a, present) {
		a.tracker.Unready()
		copy(a.perf, a.steady.perf)
		copy(a.ready, a.steady.ready)
		shares, finish = a.steady.fresh, a.steady.finish
	}
	plan.Finish = a.dead.apply(a.cluster, a.ready, finish, shares, plan.Sizes)
	plan.Perf = a.perf
	if a.guard != nil {
		if report == nil {
			a.guard.first(a)
		}
		a.guard.given(a.fresh)
	}
	for _, t := range a.trackers() {
		t.Predict(plan.Finish)
	}
	return nil
}

// observe processes a report; nil before the first round.
func (a *Agent) observe(report *cluster.Report) {
	if report == nil {
		return
	}
	for _, t := range a.trackers() {
		if report.Predicted > 0 {
			t.Predict(report.Predicted)
		}
		if t == a.believes() {
			t.Observe(report)
		} else {
			t.Watch(report, a.guard.would())
		}
	}
	if a.guard != nil {
		a.guard.judge(report, a.tracker)
	}
	a.steady.observe(a, report)
}

// trackers returns the agent's tracker and, with a network, that of the guard, which only the model updates.
func (a *Agent) trackers() []*env.Tracker {
	if a.guard == nil {
		return a.both[:1]
	}
	return a.both[:]
}

// believes returns the tracker of the deciding controller.
func (a *Agent) believes() *env.Tracker {
	if a.guarded() {
		return a.guard.tracker
	}
	return a.tracker
}

// guarded says whether the guard lets the model decide.
func (a *Agent) guarded() bool {
	return a.guard != nil && a.guard.off && a.judged()
}

// judged says whether the guard judges rounds. It judges speed alone, and no rounds that end at a deadline, where nodes do
// not compute their shares.
func (a *Agent) judged() bool { return a.weights[0] >= guardWeight && !a.cluster.Collect.Timed() }

// Performance returns the performance parameters in force, in node order; valid until
// the next decision.
func (a *Agent) Performance() []cluster.Performance { return a.perf }

// GlobalBatch returns the global batch of the last decision: the cluster's, unless its
// Choices leave it to the agent.
func (a *Agent) GlobalBatch() int { return a.cluster.GlobalBatch }

// NoiseScale returns the gradient noise scale in samples, as estimated from the gradients'
// norms; 0 if there is no estimate, or it is too uncertain to set a learning rate by.
func (a *Agent) NoiseScale() float64 { return a.tracker.SureScale() }

// SetWeights changes the objectives' weights (cluster.Objectives) from the next decision on.
func (a *Agent) SetWeights(weights [env.Objectives]float64) { a.weights = weights }

// collect chooses the round's rule, if the policy may.
func (a *Agent) collect(present []bool, plan *cluster.Plan) {
	nodes, by := a.nodes(present), plan.Collect
	for _, t := range a.trackers() {
		collect := by
		if len(a.allowed) > 0 {
			rule := t.BestRule(a.allowed, a.weights)
			collect = cluster.Rules[rule].Apply(by)
			if t == a.believes() {
				a.rule, plan.Collect = rule, collect
			}
		}
		t.SetRule(collect, nodes)
	}
	if q := &plan.Collect.Quorum; len(a.allowed) > 0 && q.Share < 1 {
		q.Without = a.believes().Silent(present)
	}
}

// first chooses the rule of the first round, when nothing is known: the largest quorum below all nodes, so that one hanging
// node does not hold up the others, and the longest grace.
func (a *Agent) first(present []bool, plan *cluster.Plan) {
	nodes := a.nodes(present)
	best := -1
	for _, k := range a.allowed {
		if r := cluster.Rules[k]; (cluster.Quorum{Share: r.Quorum}).Of(nodes) < nodes && (best < 0 || r.Quorum >= cluster.Rules[best].Quorum) {
			best = k // of one quorum, the longest grace comes last
		}
	}
	if best >= 0 {
		plan.Collect = cluster.Rules[best].Apply(plan.Collect)
		for _, t := range a.trackers() {
			t.SetRule(plan.Collect, nodes)
		}
	}
}

// nodes returns the number of nodes present; nil: all.
func (a *Agent) nodes(present []bool) int {
	if present == nil {
		return len(a.cluster.Nodes)
	}
	return count(present)
}

// choose takes a node's best action under the weights, if the network's input is in range and the action's advantage over
// the model's is large enough. A noisier node needs a larger advantage, because its values are less certain. Half of it is
// enough if the round waits for all nodes, because a node's own value then shows its full cost.
func (a *Agent) choose() {
	least := float32(a.trained.Record.Advantage)
	if a.tracker.Rule().Quorum == 1 {
		least /= 2
	}
	for i := range a.actions {
		a.Decisions++
		if !a.bounds.contains(a.rows[i*env.Features : (i+1)*env.Features]) {
			a.Fallbacks++
			continue
		}
		from, to := a.tracker.Open(i, a.model[i])
		best, most, model := a.values.best(i, from, to, a.model[i])
		if most-model > least*float32(a.tracker.Noise(i)) {
			a.actions[i] = best
		}
	}
}

// changePays is the least predicted gain, relative to the finish time, for which sizes change. Moving samples is nearly free,
// so only gains that rounding and noise explain are ignored.
const changePays = 0.0005

// deadBand keeps the sizes while a change would gain too little.
type deadBand struct {
	known bool
}

// apply leaves sizes as they are or replaces them by fresh. It returns the predicted finish
// time.
func (d *deadBand) apply(c *cluster.Cluster, perf []cluster.Performance, finish float64, fresh, sizes []int) float64 {
	kept, sum := 0.0, 0
	usable := d.known
	for i, b := range sizes {
		if (b > 0) != (fresh[i] > 0) || !c.Nodes[i].Takes(b) {
			usable = false // nodes came or went, or a limit fell
			break
		}
		if b > 0 {
			kept = max(kept, c.Nodes[i].Finish(perf[i], b))
			sum += b
		}
	}
	if usable && sum == c.GlobalBatch && kept <= finish*(1+changePays) {
		return kept
	}
	d.known = true
	copy(sizes, fresh)
	return finish
}
