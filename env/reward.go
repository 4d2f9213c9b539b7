package env

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// Reward shapes, found by experiment (docs/decisions/0003-reward.md).
const (
	ownScale   = 10.0 // a parameter 1% off costs 0.1
	ownLimit   = 0.5  // no error counts for more than a factor e^0.5
	overload   = 1.5  // too small a parameter delays everybody, too large a one wastes one node
	suddenJump = 0.1  // a change of the log slowdown that no rule could foresee
)

// ownReward is what node i earned by its parameter: its distance to the node's true
// slowdown in the round that followed, with room for its true noise. It is what the
// simulator knows and the agent does not; a reward of arrival times alone trains
// badly, as every node's is ruled by the slowest. A jump between the measurement
// (before) and the round (after) is nobody's fault: the parameter is then judged by
// what could be known.
func ownReward(used, before, after, noise, room float64) float64 {
	if math.Abs(math.Log(after/before)) > suddenJump {
		after = before
	}
	off := math.Log(used / (after * (1 + room*noise)))
	cost := min(math.Abs(off), ownLimit)
	if off < 0 {
		cost *= overload
	}
	return -ownScale * cost
}

// noiseRoom is the best room for a node's true noise, in deviations, found by search
// with an oracle on the training split: about 0.8 of the fleet's spread, less where a
// round holds several spikes anyway, behind which everybody's noise hides.
func noiseRoom(spread float64, c *cluster.Conditions, nodes int) float64 {
	spikes := c.Spikes.Rate * float64(nodes)
	return 0.82 * spread / (1 + 0.07*spikes*spikes)
}

// ideal is the finish time of the round if every true rate had been known: the state
// oracle's, without noise.
func (e *Env) ideal(truth cluster.Truth) (float64, error) {
	for i := range e.perf {
		e.oraclePerf[i] = e.truthBase[i]
		e.oraclePerf[i].PerSample *= truth.Slowdown[i]
	}
	return e.oracle.Allocate(e.known, e.sim.Present(), e.oraclePerf, e.oracleSizes)
}
