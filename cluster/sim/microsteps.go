package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// stepStream is the first stream of the generators that draw the noise within a round. Every
// node and round has its own, so the number of micro-steps changes no other draw.
const stepStream = 1 << 43

// profile is the true profile of node i.
func (s *Simulator) profile(i int) *profile.Profile {
	if p := s.cluster.Nodes[i].Hidden.Profile; p != nil {
		return p
	}
	return s.cluster.Nodes[i].Profile
}

// memory is the largest micro-batch that node i's memory really holds.
func (s *Simulator) memory(i int) int {
	if m := s.cluster.Nodes[i].Hidden.Limit; m > 0 {
		return m
	}
	return s.cluster.Nodes[i].Limit
}

// overflows says whether a share has a micro-step that node i's memory does not hold.
func (s *Simulator) overflows(i, share int) bool {
	return s.cluster.Nodes[i].MicroBatch(share) > s.memory(i)
}

// nominal is the compute time of a share at slowdown 1, without noise.
func (s *Simulator) nominal(i, share int) float64 {
	p := s.profile(i)
	large, size, small, rest := s.cluster.Nodes[i].Parts(share)
	seconds := float64(large) * p.Seconds(float64(size))
	if small > 0 {
		seconds += float64(small) * p.Seconds(float64(rest))
	}
	return seconds
}

// work carries out an order on node i, after a pause. It returns the seconds from its begin until the gradient arrives or
// the node runs out of memory, and whether it does; j gets what is handed in.
func (s *Simulator) work(i int, order cluster.Order, j *job, pause float64) (seconds float64, overflow bool) {
	n, node, ahead := &s.nodes[i], &s.cluster.Nodes[i], s.future(i)
	ahead.now += pause
	if order.Deadline == 0 && s.overflows(i, order.Share) {
		// Memory runs out while activations pile up, in the first forward pass.
		return ahead.stretch(0, s.profile(i).Seconds(float64(node.MicroBatch(order.Share)))*n.slowdown*max(n.factor, least)/3), true
	}
	if order.Deadline == 0 && s.conditions.NoiseWithin == 0 {
		j.samples, j.steps = order.Share, node.Steps(order.Share)
		return ahead.stretch(0, s.nominal(i, order.Share)*n.slowdown*max(n.factor, least)) + node.Network, false
	}
	s.within.Seed(s.seed+uint64(s.round)*0x9e3779b97f4a7c15, stepStream+uint64(i))
	rng := rand.New(&s.within)
	common, own := n.factor, n.noise*math.Sqrt(s.conditions.NoiseWithin)
	stall, at := 0.0, 0.0
	if order.Deadline > 0 {
		// A spike is one stall, at a random moment of the round.
		common -= n.spike
		stall, at = n.spike*s.nominal(i, order.Share)*n.slowdown, rng.Float64()*order.Deadline
	}
	p, a := s.profile(i), node.Begin(order)
	for {
		size := a.Next(seconds)
		if size == 0 {
			break
		}
		samples := float64(size)
		if order.Deadline > 0 && size > 1 && size > s.memory(i) {
			return seconds + ahead.stretch(seconds, p.Seconds(samples)*n.slowdown*max(common, least)/3), true
		}
		took := ahead.stretch(seconds, p.Seconds(samples)*n.slowdown*max(common+withinRound(own, rng), least))
		if stall > 0 && seconds+took > at {
			took, stall = took+stall, 0
		}
		seconds += took
		a.Done(size, took)
	}
	j.samples, j.steps = a.Samples()
	s.keep(i, &a, order.Overtime)
	return seconds + node.Network, false
}

// withinRound draws the noise of a single micro-step, with deviation own.
func withinRound(own float64, rng *rand.Rand) float64 {
	if own == 0 {
		return 0
	}
	return own * min(max(rng.NormFloat64(), -3), 3)
}

// least is the smallest noise factor.
const least = 0.05
