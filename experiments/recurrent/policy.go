package main

import (
	"time"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env"
)

// advantage is the least one over the model's own update with which a network overrules it, at the usual noise: the deployed agent's where all are waited for.
const advantage = 0.03

// policy chooses as the deployed agent does, without its guard, its range of training and its dead band of sizes: per node the action of the highest value
// among those that are open, if it is far enough above the model's. It implements agent.Policy.
type policy struct {
	cluster *cluster.Cluster
	tracker *env.Tracker
	scorer  *scorer // nil: the model alone
	rows    []float32
	inputs  []float32 // with the ones
	actions []int
	perf    []cluster.Performance
	ready   []cluster.Performance
	alloc   cluster.Allocator
	clock   func() time.Time // nil: none
	spent   time.Duration    // on values
}

func newPolicy(c *cluster.Cluster, n *network) *policy {
	nodes := len(c.Nodes)
	p := &policy{cluster: c, tracker: env.NewTracker(c), actions: make([]int, nodes), perf: c.Nominal(), ready: make([]cluster.Performance, nodes)}
	if n != nil {
		p.scorer = newScorer(n)
	}
	return p
}

// Decide implements agent.Policy.
func (p *policy) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.tracker.Observe(report)
		p.tracker.SetRule(plan.Collect, len(p.actions))
		p.tracker.Model(p.actions)
		if p.scorer != nil {
			p.choose()
		}
		p.tracker.Apply(p.actions, p.perf)
	}
	p.tracker.Occupy(p.perf, p.ready)
	finish, err := p.alloc.Allocate(p.cluster, present, p.ready, plan.Sizes)
	if err != nil {
		return err
	}
	plan.Perf, plan.Finish = p.perf, finish
	p.tracker.Predict(finish)
	return nil
}

// choose overrules the model's actions.
func (p *policy) choose() {
	p.rows = p.tracker.Rows(p.rows, [env.Objectives]float64{1})
	p.inputs = p.inputs[:0]
	for i := range p.actions {
		p.inputs = append(append(p.inputs, p.rows[i*env.Features:(i+1)*env.Features]...), 1)
	}
	var begun time.Time
	if p.clock != nil {
		begun = p.clock()
	}
	values := p.scorer.see(p.inputs)
	if p.clock != nil {
		p.spent += p.clock().Sub(begun)
	}
	for i, model := range p.actions {
		q := values[i*len(env.Actions):][:len(env.Actions)]
		from, to := p.tracker.Open(i, model)
		best := model
		for k := from; k < to; k++ {
			if q[k] > q[best] {
				best = k
			}
		}
		if q[best]-q[model] > advantage*float32(p.tracker.Noise(i)) {
			p.actions[i] = best
		}
	}
}
