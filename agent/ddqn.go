package agent

import (
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// Agent is the Double-DQN policy: for every node it chooses how far to trust the newest
// measurement and how much room to leave for noise, and allocates by the performance
// parameters that result.
type Agent struct {
	cluster *cluster.Cluster
	tracker *env.Tracker
	actor   *ddqn.Actor
	weights [env.Objectives]float64
	w32     [env.Objectives]float32
	rows, q []float32
	actions []int
	model   []int
	perf    []cluster.Performance
	alloc   cluster.Allocator
}

// NewAgent returns the policy of a network on a cluster. The actor may serve several
// agents of one goroutine.
func NewAgent(c *cluster.Cluster, actor *ddqn.Actor, weights [env.Objectives]float64) *Agent {
	a := &Agent{
		cluster: c, tracker: env.NewTracker(c), actor: actor, weights: weights,
		actions: make([]int, len(c.Nodes)), model: make([]int, len(c.Nodes)), perf: c.Nominal(),
	}
	for i, w := range weights {
		a.w32[i] = float32(w)
	}
	return a
}

// Decide is Policy's.
func (a *Agent) Decide(report *cluster.Report, present []bool, sizes []int) error {
	if report != nil {
		a.tracker.Observe(report)
		a.rows = a.tracker.Rows(a.rows, a.weights)
		a.q = a.actor.Q(a.q, a.rows)
		a.tracker.Model(a.model)
		choose(a.actions, a.q, a.w32, a.model, Advantage)
		a.tracker.Apply(a.actions, a.perf)
	}
	finish, err := a.alloc.Allocate(a.cluster, present, a.perf, sizes)
	a.tracker.Predict(finish)
	return err
}

// Advantage is how much better than the model's own update the network must find an
// action before it is taken.
var Advantage = 0.0

// choose takes every node's best action under the weights, or the model's own update
// where that is worth less than least more.
func choose(actions []int, q []float32, w [env.Objectives]float32, model []int, least float64) {
	const width = env.Objectives
	count := len(env.Actions)
	value := func(q []float32, a int) float32 {
		v := float32(0)
		for o := range width {
			v += w[o] * q[a*width+o]
		}
		return v
	}
	for i := range actions {
		own := q[i*count*width : (i+1)*count*width]
		actions[i] = ddqn.Greedy(own, count, width, w[:])
		if model != nil && float64(value(own, actions[i])-value(own, model[i])) < least {
			actions[i] = model[i]
		}
	}
}
