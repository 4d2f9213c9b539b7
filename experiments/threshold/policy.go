package main

import (
	"errors"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
)

// threshold selects who takes part by a time that a Double-DQN network chooses anew in every round, as ATCS-FL does (Symmetry 17(10), 1700, 2025):
// a node does where its newest time, at an even share, is within the threshold. It sees raw times and knows no model; shares are even. Deviations, beside
// those of what the paper leaves open (its abstract and summary were at hand, not its tables of states and rewards): times are those that
// were measured, as no node reports beforehand what it can do, so one that is left out is seen again only when a threshold lets it in; the
// global batch is fixed, so those that are selected share it; the reward is the speed alone, as all samples are alike.
//
// It implements agent.Policy.
type threshold struct {
	cluster *cluster.Cluster
	actor   *ddqn.Actor // nil: the action stays as it is
	times   []float64   // newest seconds a sample, of shares of half an even one and more; 0: none yet
	before  []float64   // and those before
	part    []bool      // takes part in the coming round
	action  int
	wait    float64 // of the newest round, over what the median node would take for a share of it
	change  float64 // mean of what times changed by, logarithm
	idle    float64 // share of the nodes' time
	row, q  []float32
	alloc   cluster.Allocator
}

// limits are the actions: the threshold over the median node's time for an even share.
var limits = []float64{0.5, 0.65, 0.8, 0.9, 1, 1.15, 1.35, 1.6, 2, 3, math.Inf(1)}

const features = 12

func newThreshold(c *cluster.Cluster, net *ddqn.Network) *threshold {
	n := len(c.Nodes)
	p := &threshold{cluster: c, times: make([]float64, n), before: make([]float64, n), part: make([]bool, n), action: len(limits) - 1}
	if net != nil {
		p.actor = ddqn.NewActor(net)
	}
	return p
}

// Decide implements agent.Policy.
func (p *threshold) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.observe(report)
		if p.actor != nil {
			p.q = p.actor.Q(p.q, p.look(present))
			p.action = ddqn.Greedy(p.q, len(limits), 1, []float32{1})
		}
	}
	return p.apply(present, plan.Sizes)
}

// observe takes in a round.
func (p *threshold) observe(report *cluster.Report) {
	wait := max(report.Wait.Seconds(), 1e-9)
	taking, changed, count := 0.0, 0.0, 0.0
	p.idle = 0
	for i := range report.Nodes {
		r := &report.Nodes[i]
		if r.Size == 0 {
			continue
		}
		taking++
		p.idle += min(r.Idle/wait, 1)
		if !r.Measured() || 2*r.Size*len(p.times) < p.cluster.GlobalBatch {
			continue
		}
		p.before[i], p.times[i] = p.times[i], r.Seconds/float64(r.Size)
		if p.before[i] > 0 {
			changed += math.Abs(math.Log(p.times[i] / p.before[i]))
			count++
		}
	}
	p.idle /= max(taking, 1)
	p.change = changed / max(count, 1)
	m := p.median(nil)
	p.wait = wait / max(m*float64(p.cluster.GlobalBatch)/max(taking, 1), 1e-9)
}

// known are the newest times of those present, sorted.
func (p *threshold) known(present []bool) []float64 {
	var known []float64
	for i, t := range p.times {
		if t > 0 && (present == nil || present[i]) {
			known = append(known, t)
		}
	}
	slices.Sort(known)
	return known
}

func (p *threshold) median(present []bool) float64 {
	known := p.known(present)
	if len(known) == 0 {
		return 0
	}
	return known[len(known)/2]
}

// look is the observation, a row of the network's.
func (p *threshold) look(present []bool) []float32 {
	p.row = p.row[:0]
	put := func(v float64) { p.row = append(p.row, float32(min(max(v, -2), 2))) }
	known := p.known(present)
	for _, q := range []float64{0, 0.25, 0.75, 1} {
		v := 0.0
		if n := len(known); n > 0 {
			v = math.Log(known[int(q*float64(n-1))] / known[n/2])
		}
		put(v)
	}
	taking := 0.0
	for _, in := range p.part {
		if in {
			taking++
		}
	}
	n := float64(len(p.times))
	put(2*taking/n - 1)
	put(math.Log(max(p.wait, 1e-3)))
	put(5 * p.change)
	put(2 * p.idle)
	put(float64(len(known))/n - 0.5)
	put(float64(p.action)/5 - 1)
	put(math.Log(n)/2 - 1.5)
	put(1)
	return p.row
}

// apply selects by the action and writes even shares. Where the selected cannot hold the global batch the next quickest join them.
func (p *threshold) apply(present []bool, sizes []int) error {
	limit := limits[p.action] * p.median(present)
	order := make([]int, 0, len(sizes))
	taking := false
	for i := range sizes {
		here := present == nil || present[i]
		if p.part[i] = here && (p.times[i] == 0 || p.times[i] <= limit || math.IsInf(limit, 1)); p.part[i] {
			taking = true
		} else if here {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p.times[a] < p.times[b]:
			return -1
		case p.times[a] > p.times[b]:
			return 1
		}
		return a - b
	})
	for {
		err := cluster.ErrCapacity
		if taking {
			err = p.alloc.Uniform(p.cluster, p.part, sizes)
		}
		if !errors.Is(err, cluster.ErrCapacity) || len(order) == 0 {
			return err
		}
		p.part[order[0]], order, taking = true, order[1:], true
	}
}
