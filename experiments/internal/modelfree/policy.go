// Package modelfree is reinforcement learning as others have applied it to batch sizes, the policy that
// experiments/tuner/modelfree trains.
package modelfree

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
)

// Policy is one shared agent that changes every worker's batch from measured times alone, as in DYNAMIX (2025), known
// here from summaries. It shows what correcting a model is worth. Deviations: this
// project's Double DQN instead of PPO; factors instead of numbers of samples, so that one
// agent fits every size; a change every round; a fixed global batch, so that factors are
// relative to the other nodes'. It reads no profile and starts from the nodes' data-sheet
// speed, uniform if that is unknown.
//
// It implements agent.Policy. Training uses Observe, Rows and Apply instead of Decide.
type Policy struct {
	cluster *cluster.Cluster
	actor   *ddqn.Actor
	nodes   []resized
	weights []float64 // a node's size over an even share, before rounding and limits
	even    float64   // samples
	fleet   struct{ idle, spread, missing float64 }
	rounds  int
	rows, q []float32
	actions []int
	alloc   cluster.Allocator
}

// resized is the state of a node.
type resized struct {
	size        int // handed out last
	change      float64
	times       [4]float64 // log of the node's time over the fleet's mean, newest first
	average     float64    // moving average of times over about ten rounds
	behind      float64    // log of the newest over the slowest node's
	idle        float64    // share of the round
	fresh, late bool
}

// Features is the width of Policy's rows.
const Features = 18

// Factors are its actions: factors of a node's share.
var Factors = []float64{0.8, 0.9, 0.97, 1, 1.03, 1.1, 1.25}

// Spec is the shape of its network.
func Spec(hidden []int) ddqn.Spec {
	return ddqn.Spec{Features: Features, Actions: len(Factors), Objectives: 1, Hidden: hidden}
}

// New returns the policy for c. net has Spec's shape; nil: the caller
// chooses actions and does not call Decide.
func New(c *cluster.Cluster, net *ddqn.Network) *Policy {
	n := len(c.Nodes)
	p := &Policy{cluster: c, nodes: make([]resized, n), weights: nameplates(c), even: float64(c.GlobalBatch) / float64(n), actions: make([]int, n)}
	if net != nil {
		p.actor = ddqn.NewActor(net)
	}
	sum := 0.0
	for _, w := range p.weights {
		sum += w / float64(n)
	}
	for i := range p.actions {
		p.weights[i] /= sum
		p.actions[i] = len(Factors) / 2
	}
	return p
}

// nameplates are the nodes' data-sheet speeds. A device without one counts as the mean of the others.
func nameplates(c *cluster.Cluster) []float64 {
	weights, sum, known := make([]float64, len(c.Nodes)), 0.0, 0
	for i, n := range c.Nodes {
		weights[i] = n.TFLOPS
		if n.TFLOPS > 0 {
			sum += n.TFLOPS
			known++
		}
	}
	for i := range weights {
		if weights[i] == 0 {
			weights[i] = 1
			if known > 0 {
				weights[i] = sum / float64(known)
			}
		}
	}
	return weights
}

// Decide implements agent.Policy.
func (p *Policy) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.Observe(report)
		p.rows = p.Rows(p.rows)
		p.q = p.actor.Q(p.q, p.rows)
		for i := range p.actions {
			p.actions[i] = ddqn.Greedy(p.q[i*len(Factors):], len(Factors), 1, []float32{1})
		}
	}
	return p.Apply(p.actions, present, plan.Sizes)
}

// Observe processes the report of a round.
func (p *Policy) Observe(report *cluster.Report) {
	mean, square, slowest, seen, taking := 0.0, 0.0, 0.0, 0.0, 0.0
	wait := max(report.Wait.Seconds(), 1e-9)
	p.fleet.idle = 0
	for i := range report.Nodes {
		n, r := &p.nodes[i], &report.Nodes[i]
		n.fresh, n.late, n.idle = r.Measured(), r.Status == cluster.Late && r.Seconds > 0, min(r.Idle/wait, 1)
		if r.Status != cluster.Absent {
			taking++
			p.fleet.idle += n.idle
		}
		if n.fresh || n.late {
			seen++
			mean += r.Seconds
			square += r.Seconds * r.Seconds
			slowest = max(slowest, r.Seconds)
		}
	}
	p.rounds++
	p.fleet.idle /= max(taking, 1)
	p.fleet.missing = 1 - seen/max(taking, 1)
	mean /= max(seen, 1)
	p.fleet.spread = math.Sqrt(max(square/max(seen*mean*mean, 1e-300)-1, 0))
	for i := range report.Nodes {
		n, r := &p.nodes[i], &report.Nodes[i]
		if n.fresh || n.late {
			copy(n.times[1:], n.times[:3])
			n.times[0] = math.Log(r.Seconds / mean)
			n.average += 0.1 * (n.times[0] - n.average)
			n.behind = math.Log(r.Seconds / slowest)
		}
	}
}

// Rows writes the observation, one row of Features a node, into dst (grown if
// needed). Every entry is free of scale and clipped, as in env.
func (p *Policy) Rows(dst []float32) []float32 {
	dst = dst[:0]
	for i := range p.nodes {
		n := &p.nodes[i]
		dst = append(dst,
			bounded(4*n.times[0], 3), bounded(4*n.times[1], 3), bounded(4*n.times[2], 3), bounded(4*n.times[3], 3),
			bounded(4*n.average, 3), bounded(2*n.behind, 3), bounded(2*n.idle, 2),
			bounded(math.Log(max(float64(n.size), 1)/p.even), 4), bounded(4*math.Log(p.weights[i]*p.even/max(float64(n.size), 1)), 2),
			bounded(5*n.change, 2), flag(n.fresh), flag(n.late), 0, /* said that a node was at its memory limit */
			bounded(2*p.fleet.idle, 2), bounded(2*p.fleet.spread, 3), bounded(2*p.fleet.missing, 2),
			bounded(math.Log(float64(len(p.nodes)))/4-0.7, 2), bounded(math.Log1p(float64(p.rounds))/3-1, 0.5),
		)
	}
	return dst
}

// Apply changes every present node's share by its action, an index into
// Factors, and writes the sizes that result.
func (p *Policy) Apply(actions []int, present []bool, sizes []int) error {
	for i, a := range actions {
		if present == nil || present[i] {
			p.weights[i] *= Factors[a]
		}
	}
	if err := p.alloc.Proportional(p.cluster, present, p.weights, sizes); err != nil {
		return err
	}
	// Weights follow the sizes they led to: a node at a single sample must not lose any.
	count, free, weight := 0.0, 0.0, 0.0
	for i, b := range sizes {
		if b > 0 {
			count++
			free += float64(b)
			weight += p.weights[i]
		}
	}
	p.even = float64(p.cluster.GlobalBatch) / count
	for i, b := range sizes {
		n := &p.nodes[i]
		if b > 0 {
			p.weights[i] = max(p.weights[i]*free/weight, 0.5) / p.even
		}
		n.change = 0
		if n.size > 0 && b > 0 {
			n.change = math.Log(float64(b) / float64(n.size))
		}
		n.size = b
	}
	return nil
}

func bounded(v, limit float64) float32 { return float32(min(max(v, -limit), limit)) }

func flag(b bool) float32 {
	if b {
		return 1
	}
	return 0
}
