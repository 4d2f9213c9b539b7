package agent

import (
	"evenkeel/cluster"
	"evenkeel/env"
)

// Agent is the Double-DQN policy: for every node it chooses how far to trust the newest
// measurement and how large a safety margin to leave for noise (the method's step 5), and
// allocates by the resulting performance parameters (step 6). Where the cluster leaves
// quorum and grace free, it first chooses the round's rule. It implements Policy.
type Agent struct {
	trained *Trained         `state:"-"`
	cluster *cluster.Cluster `state:"-"`
	tracker *env.Tracker
	both    [2]*env.Tracker `state:"-"` // the agent's tracker and the guard's
	values  *values         `state:"-"` // the network's; nil: only the model's own updates
	allowed []int           // rules to choose from; none: the rule is fixed
	rule    int             // chosen last; -1: none yet
	weights [env.Objectives]float64
	rows    []float32 `state:"-"` // the network's input, working memory
	actions []int
	model   []int
	guard   *guard // nil without a network
	perf    []cluster.Performance
	ready   []cluster.Performance // perf plus the time that older work still takes
	fresh   []int                 // the allocation by the newest parameters
	alloc   cluster.Allocator
	dead    deadBand
	bounds  bounds   `state:"-"` // of the network's input
	batch   *batcher // nil: the global batch is fixed
	seen    seen     // for Explain

	// Decisions counts those about nodes; Fallbacks counts the ones left to the model because
	// the network's input was out of range, or its last decisions cost speed.
	Fallbacks, Decisions int
}

// NewAgent returns the policy for c. weights are the objectives' (cluster.Objectives).
func (t *Trained) NewAgent(c *cluster.Cluster, weights [env.Objectives]float64) *Agent {
	a := NewModel(c)
	a.trained, a.weights, a.values = t, weights, &values{network: t.Network}
	a.bounds, a.guard = newBounds(t.Record.Low, t.Record.High), newGuard(a)
	return a
}

// NewModel returns the agent's fallback rule by itself: the model's own updates, without a
// network. It is the ablation that shows what the network adds.
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
		dead: deadBand{least: changePays},
	}
	a.both[0] = a.tracker
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
		copy(a.actions, a.model)
		if a.values != nil {
			a.rows = a.tracker.Rows(a.rows, a.weights)
			a.values.score(a.rows, a.weights)
			a.choose()
		}
		a.tracker.Apply(a.actions, a.perf)
		if a.guard != nil {
			a.Fallbacks += a.guard.decide(a)
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
	plan.Finish = a.dead.apply(a.cluster, a.ready, finish, a.fresh, plan.Sizes)
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

// observe takes in a report, nil before the first round.
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
}

// trackers returns the agent's own tracker and, with a network, the guard's, which the model alone moves.
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

// judged says whether the guard judges rounds: it judges speed only, and no rounds that end by time, whose sizes are not the shares.
func (a *Agent) judged() bool { return a.weights[0] >= guardWeight && !a.cluster.Collect.Timed() }

// Performance returns the performance parameters in force, in node order; valid until
// the next decision.
func (a *Agent) Performance() []cluster.Performance { return a.perf }

// GlobalBatch returns the global batch of the last decision: the cluster's, unless its
// Choices leave it to the agent.
func (a *Agent) GlobalBatch() int { return a.cluster.GlobalBatch }

// NoiseScale returns the gradient noise scale in samples, as estimated from the gradients'
// norms; 0 if there is no estimate, or none that a learning rate should follow.
func (a *Agent) NoiseScale() float64 { return a.tracker.SureScale() }

// SetWeights changes the objectives' weights (cluster.Objectives) from the next decision on.
func (a *Agent) SetWeights(weights [env.Objectives]float64) { a.weights = weights }

// collect chooses the round's rule if it is free.
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

// first chooses the rule of the first round, of which nothing is known: the rule that gives most nodes the longest time, but
// does not wait for a node that hangs.
func (a *Agent) first(present []bool, plan *cluster.Plan) {
	nodes := a.nodes(present)
	best := -1
	for _, k := range a.allowed {
		if r := cluster.Rules[k]; (cluster.Quorum{Share: r.Quorum}).Of(nodes) < nodes && (best < 0 || r.Quorum >= cluster.Rules[best].Quorum) {
			best = k // graces rise within a quorum
		}
	}
	if best >= 0 {
		plan.Collect = cluster.Rules[best].Apply(plan.Collect)
		for _, t := range a.trackers() {
			t.SetRule(plan.Collect, nodes)
		}
	}
}

// nodes returns the number of nodes present; nil: all are.
func (a *Agent) nodes(present []bool) int {
	if present == nil {
		return len(a.cluster.Nodes)
	}
	return count(present)
}

// choose takes every node's best action under the weights if the network's input is in
// range and the advantage over the model's own update is large enough. A noisier node needs
// a larger advantage, because its values are less certain; half of it is enough where everybody is waited for, as a
// node's own value then says what it costs.
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

// changePays is the least predicted gain for which sizes change. Moving samples is nearly
// free, so only gains that rounding and noise explain are ignored.
const changePays = 0.0005

// deadBand keeps sizes while a change would gain too little.
type deadBand struct {
	least float64 // relative gain of the finish time
	known bool
}

// apply leaves sizes as they are or replaces them by fresh. It returns the predicted finish
// time.
func (d *deadBand) apply(c *cluster.Cluster, perf []cluster.Performance, finish float64, fresh, sizes []int) float64 {
	kept, sum := 0.0, 0
	usable := d.known
	for i, b := range sizes {
		if (b > 0) != (fresh[i] > 0) {
			usable = false // nodes came or went
			break
		}
		if b > 0 {
			kept = max(kept, c.Nodes[i].Finish(perf[i], b))
			sum += b
		}
	}
	if usable && sum == c.GlobalBatch && kept <= finish*(1+d.least) {
		return kept
	}
	d.known = true
	copy(sizes, fresh)
	return finish
}
