package episode

import (
	"math"

	"evenkeel/cluster"
	"evenkeel/env"
)

// The shape of a node's own reward; docs/decisions/0003-reward.md describes how it was
// found.
const (
	worst      = 2.0 // largest loss: how far a missed jump went does not matter
	suddenJump = 0.1 // a change of the log slowdown that no rule could foresee
)

// stakes are what a node's parameter can gain and lose in a round, the same for all nodes.
type stakes struct {
	margin float64 // best margin for a node's true noise, in deviations
	nodes  float64 // nodes that wait for one that is later than the largest spike
	beyond float64 // expected lateness of the largest spike, relative to the finish; 0: no spike is expected
}

// newStakes sets the best margin. A search with an oracle on the training split found about 0.8
// of the fleet's spread, and less if a round has several spikes, which hide the noise of the
// other nodes.
//
// If a round does not wait for all nodes, a late node holds the others up for at most the
// grace. The best margin is then 0.3 of the spread without a grace, and grows with the grace.
func newStakes(spread float64, c *cluster.Conditions, nodes int, rule cluster.Rule) stakes {
	if rule.Quorum < 1 {
		return stakes{margin: spread * min(0.3+1.5*rule.Grace, 0.82)}
	}
	spikes := c.Spikes.Rate * float64(nodes)
	s := stakes{margin: 0.82 * spread * env.Hidden(spikes), nodes: float64(nodes)}
	if spikes > 1 { // the largest of so many exponential numbers
		s.beyond = c.Spikes.Least + c.Spikes.More*(math.Log(spikes)+0.577)
	}
	return s
}

// ownReward is a node's reward for its parameter, at most 0: minus the expected loss of
// goodput against the best parameter, in units of one node's goodput. A
// parameter above the truth wastes some of the node (ln p/x); one below it makes
// everybody wait (the expected overshoot over the common finish time, times the nodes
// that wait; all of them beyond the spikes):
//
//	loss(p) = ln(p/x) + n E[(x/p (1 + noise z) - 1)+] + (N-n) E[(x/p (1 + noise z) - 1 - beyond)+]
//
// with z normal and 1/n = P(z > margin).
//
// The true time x is known to the simulator, not to the agent. Rewards from arrival times
// train badly, because the slowest node decides the reward of all.
//
// before and after are p/x, the predicted finish time over the true one, by the true
// slowdown at the measurement and in the round. A jump between the two cannot be foreseen:
// the parameter is then judged by before.
func (s *stakes) ownReward(before, after, noise float64) float64 {
	if math.Abs(math.Log(after/before)) > suddenJump {
		after = before
	}
	noise = max(noise, 1e-3)
	waiting := 1 / above(s.margin)
	overshoot := func(ratio, beyond float64) float64 {
		t := ((1+beyond)*ratio - 1) / noise
		return noise / ratio * (density(t) - t*above(t))
	}
	loss := func(ratio float64) float64 { // ratio p/x
		l := math.Log(ratio) + waiting*overshoot(ratio, 0)
		if s.beyond > 0 {
			l += max(s.nodes-waiting, 0) * overshoot(ratio, s.beyond)
		}
		return l
	}
	return -min(max(loss(after)-loss(1+s.margin*noise), 0), worst)
}

const (
	lateSlack = 0.03 // of a round: how much later than predicted a quorum is complete
	lateLoss  = 0.6  // share of its marginal value that a sample loses by coming a round late
)

// lateReward is the reward of a node that was still at older work when the round opened,
// if the round does not wait for it: minus the time that it is idle before the deadline,
// or minus what its samples lose by being late, in shares of a round. All
// times are in units of the predicted finish: the deadline, what was left of the older
// work, and how long the share takes.
func lateReward(deadline, left, work, noise float64) float64 {
	spare := deadline - left - work
	late := above(spare / (max(noise, 1e-3) * work))
	return -min((1-late)*max(spare, 0)+late*lateLoss*min(work, 1), worst)
}

// above is P(z > t) and density the density of a standard normal z.
func above(t float64) float64   { return 0.5 * math.Erfc(t/math.Sqrt2) }
func density(t float64) float64 { return math.Exp(-t*t/2) / math.Sqrt(2*math.Pi) }

// teamReward is the team's reward by objective. ideal is the oracle's time for the round in seconds, joules its energy
// per sample, 0 if no node's power is known.
func teamReward(report *cluster.Report, c *cluster.Cluster, ideal, joules float64) (reward [env.Objectives]float64) {
	wait := max(report.Wait.Seconds(), 1e-9)
	idle, taking, aged, drawn := 0.0, 0.0, 0.0, 0.0
	for i := range report.Nodes {
		r := &report.Nodes[i]
		if r.Status == cluster.Absent {
			continue
		}
		idle += min(r.Idle/wait, 1)
		taking++
		aged += float64(r.Aged)
		drawn += c.Nodes[i].Power.Joules(wait-min(r.Idle, wait), wait)
	}
	reward[0] = ideal/wait*report.Counted/float64(c.GlobalBatch) - 1
	reward[1] = -idle / max(taking, 1)
	if accepted := float64(report.Accepted); accepted > 0 {
		reward[2] = -aged / accepted
		if joules > 0 {
			reward[3] = max(1-drawn/report.Counted/joules, -worst)
		}
	}
	return reward
}

// staleShare is the share of a node's samples that were computed on an older model.
func staleShare(r *cluster.NodeReport) float64 {
	if r.Status == cluster.Absent || r.Samples == 0 {
		return 0
	}
	return float64(r.Aged) / float64(r.Samples)
}

// ideal returns the state oracle's finish time for the round without noise, in seconds, and its joules per sample.
func (e *Episode) ideal(truth cluster.Truth) (finish, joules float64, err error) {
	for i := range e.perf {
		e.oraclePerf[i] = e.truthBase[i]
		e.oraclePerf[i].PerSample *= truth.Slowdown[i]
	}
	finish, err = e.oracle.Allocate(e.known, e.sim.Present(), e.oraclePerf, e.oracleSizes)
	for i, b := range e.oracleSizes {
		if n := &e.known.Nodes[i]; b > 0 && err == nil {
			joules += n.Power.Joules(n.Finish(e.oraclePerf[i], b), finish)
		}
	}
	return finish, joules / float64(e.known.GlobalBatch), err
}
