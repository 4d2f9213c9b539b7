package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
)

// stress is what cluster.Stress does to a node. It has generators of its own, so that a
// node's other draws stay the same.
type stress struct {
	own, rack rand.PCG // every node of a rack has the same rack, and so sees the same spells
	spell     spell
	phase     float64 // of the swing, in periods
	creeps    bool
	flips     bool
	slow      bool    // in the slower of its two modes
	wrong     float64 // constant slowdown
	clock     float64 // seconds that it is ahead
	round     int
}

// Streams of the generators, far from the nodes' own.
const (
	stressStream = 1 << 40
	rackStream   = 1 << 41
)

// newStress draws what stays the same over a run; nil if no part is switched on. It draws
// everything, so that the parts do not change one another.
func newStress(c *cluster.Stress, seed uint64, index int) *stress {
	if *c == (cluster.Stress{}) {
		return nil
	}
	u := &stress{wrong: 1}
	u.own.Seed(seed, stressStream+uint64(index))
	rng := rand.New(&u.own)
	u.phase = rng.Float64()
	u.creeps = rng.Float64() < c.Creep.Share
	u.flips, u.slow = rng.Float64() < c.Modes.Share, rng.Float64() < 0.5
	if wrong, slower := rng.Float64() < c.Wrong.Share, rng.Float64() < 0.5; wrong {
		u.wrong = c.Wrong.Factor
		if !slower {
			u.wrong = 1 / u.wrong
		}
	}
	u.clock = c.Clocks.SD * rng.NormFloat64()
	if c.Racks.Size > 0 {
		u.rack.Seed(seed, rackStream+uint64(index/c.Racks.Size))
		u.spell = newSpell(&c.Racks.Episode, rand.New(&u.rack))
	}
	return u
}

// advance returns the slowdown in the next round.
func (u *stress) advance(c *cluster.Stress) float64 {
	slow, round := u.wrong, float64(u.round)
	u.round++
	if c.Racks.Size > 0 {
		slow *= u.spell.advance(&c.Racks.Episode, rand.New(&u.rack))
	}
	if d := &c.Diurnal; d.Amplitude > 0 {
		slow *= math.Exp(d.Amplitude * math.Sin(2*math.Pi*(round/d.Rounds+u.phase)))
	}
	if u.creeps {
		slow *= min(1+round/c.Creep.Rounds, c.Creep.Most)
	}
	if u.flips {
		if rand.New(&u.own).Float64() < 1/c.Modes.Rounds {
			u.slow = !u.slow
		}
		if u.slow {
			slow *= 1 + c.Modes.Excess
		}
	}
	return slow
}

// stamped is a duration as the node reports it, with its end stamped by its own clock
// (cluster.Clocks).
func (u *stress) stamped(seconds float64) float64 {
	if u == nil {
		return seconds
	}
	return max(seconds+u.clock, 0.01*seconds)
}
