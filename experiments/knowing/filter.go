package main

import (
	"math"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
)

// filter is a Kalman filter (1960) of every node's logarithm of its slowdown, a constant plus what drifts and returns, told what nobody knows: each
// node's noise, the spread of profiles and the drift's spread and time. What is off by more than it can be is taken for a spike.
// It allocates by the slowdown that it predicts for the round, with a margin in deviations of what the round will be.
type filter struct {
	cluster      *cluster.Cluster
	truth        baseline.TruthSource
	margin       float64
	keep, change float64 // of the drift, from round to round: factor, and variance added
	base, perf   []cluster.Performance
	nodes        []state
	alloc        cluster.Allocator
}

// state is a node's: means and covariance of the constant and the drift.
type state struct {
	level, drift             float64
	levels, drifts, together float64
	strange                  int // measurements in a row that cannot be
}

const (
	cannot = 3.5 // deviations beyond which a measurement is a spike
	trust  = 3   // so many in a row are none
)

func newFilter(c *cluster.Cluster, truth baseline.TruthSource, conditions *cluster.Conditions, margin float64) agent.Policy {
	f := &filter{cluster: c, truth: truth, margin: margin, base: c.Nominal(), perf: c.Nominal(), nodes: make([]state, len(c.Nodes))}
	if d := conditions.Drift; d.SD > 0 {
		f.keep = math.Exp(-1 / d.Rounds)
		f.change = d.SD * d.SD * (1 - f.keep*f.keep)
	}
	for i := range f.nodes {
		f.nodes[i].levels, f.nodes[i].drifts = conditions.Bias*conditions.Bias, conditions.Drift.SD*conditions.Drift.SD
	}
	return f
}

// Decide implements agent.Policy.
func (f *filter) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	noise := f.truth.Truth().Noise
	for i := range f.nodes {
		n, node := &f.nodes[i], &f.cluster.Nodes[i]
		if report != nil {
			if r := &report.Nodes[i]; r.Measured() {
				n.observe(math.Log(node.Slowness(f.base[i], r)), noise[i]*noise[i])
			}
			n.drift *= f.keep
			n.drifts = f.keep*f.keep*n.drifts + f.change
			n.together *= f.keep
		}
		doubt := n.levels + n.drifts + 2*n.together
		slow := math.Exp(n.level+n.drift) * (1 + f.margin*math.Sqrt(noise[i]*noise[i]+doubt))
		f.perf[i] = node.Slowed(f.base[i], slow)
	}
	finish, err := f.alloc.Allocate(f.cluster, present, f.perf, plan.Sizes)
	plan.Perf, plan.Finish = f.perf, finish
	return err
}

// observe takes in a measured logarithm of the slowdown, with its variance.
func (n *state) observe(measured, variance float64) {
	off := measured - n.level - n.drift
	all := n.levels + n.drifts + 2*n.together + variance
	if off*off > cannot*cannot*all {
		if n.strange++; n.strange < trust {
			return
		}
	}
	n.strange = 0
	a, b := n.levels+n.together, n.drifts+n.together
	n.level += a / all * off
	n.drift += b / all * off
	n.levels -= a * a / all
	n.drifts -= b * b / all
	n.together -= a * b / all
}

// Omniscient implements agent.Omniscient: it is a bound.
func (*filter) Omniscient() {}
