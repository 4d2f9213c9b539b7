package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
)

// node is the true state of a node, as opposed to a controller's belief.
type node struct {
	pcg      rand.PCG
	constant float64 // departure from the profile that never changes
	noise    float64 // relative deviation of one round's time
	drift    float64 // of the log slowdown
	slowly   float64 // the slow part of the drift
	episodes []spell // one per kind of episode
	stress   *stress // nil: none
	away     int     // rounds until it is back; 0: here
	slowdown float64 // without noise, in the round about to run
	factor   float64 // noise of the round about to run, its spike included
	spike    float64 // the spike's part of factor
	fails    float64 // when the node fails in the round about to run: share of its work done; negative: it does not
	silent   bool    // a failure that only the heartbeat shows
	spiked   bool    // the round about to run is a spike
	absence  int     // rounds it stays away after that failure
}

type spell struct {
	left int // rounds
	slow float64
}

// newSpell is the state before the first round; the first advance takes one round off.
func newSpell(e *cluster.Episode, rng *rand.Rand) spell {
	begin, length, z := rng.Float64(), rng.Float64(), rng.NormFloat64()
	if begin < e.AtStart {
		return spell{left: 1 + geometric(length, e.Rounds), slow: e.DrawSlowdown(z)}
	}
	return spell{}
}

// advance returns the slowdown in the next round.
func (s *spell) advance(e *cluster.Episode, rng *rand.Rand) float64 {
	if s.left > 0 {
		s.left--
	} else if rng.Float64() < e.Rate {
		*s = spell{left: geometric(rng.Float64(), e.Rounds), slow: e.DrawSlowdown(rng.NormFloat64())}
	}
	if s.left > 0 {
		return s.slow
	}
	return 1
}

// newNode draws what stays the same over a run and the state of the first round.
func newNode(c *cluster.Conditions, constant float64, seed uint64, index, count int) node {
	n := node{fails: -1}
	n.pcg.Seed(seed, uint64(index)+1)
	rng := rand.New(&n.pcg)
	n.constant = constant * math.Exp(c.Bias*rng.NormFloat64())
	n.noise = c.DrawNoise(rng.NormFloat64())
	n.drift = c.Drift.SD * rng.NormFloat64()
	if c.Drift.SlowSD > 0 {
		n.slowly = c.Drift.SlowSD * rng.NormFloat64()
	}
	n.episodes = make([]spell, len(c.Episodes))
	for k := range c.Episodes {
		n.episodes[k] = newSpell(&c.Episodes[k], rng)
	}
	if late := int(math.Round(c.Joins.Share * float64(count))); index > 0 && index >= count-late {
		n.away = 1 + int(float64(c.Joins.Rounds)*rng.Float64())
	}
	n.stress = newStress(&c.Stress, seed, index)
	n.advance(c)
	return n
}

// advance moves the node to its next round. It draws only from the node's own streams, so
// that a policy's choices do not change the node's future.
func (n *node) advance(c *cluster.Conditions) {
	rng := rand.New(&n.pcg)
	log := 0.0
	if c.Drift.SD > 0 {
		keep := math.Exp(-1 / c.Drift.Rounds)
		n.drift = keep*n.drift + c.Drift.SD*math.Sqrt(1-keep*keep)*rng.NormFloat64()
		log = n.drift
	}
	if c.Drift.SlowSD > 0 {
		keep := math.Exp(-1 / c.Drift.SlowRounds)
		n.slowly = keep*n.slowly + c.Drift.SlowSD*math.Sqrt(1-keep*keep)*rng.NormFloat64()
		log += n.slowly
	}
	n.slowdown = n.constant
	if log != 0 {
		n.slowdown *= math.Exp(log)
	}
	for k := range n.episodes {
		n.slowdown *= n.episodes[k].advance(&c.Episodes[k], rng)
	}
	if n.stress != nil {
		n.slowdown *= n.stress.advance(&c.Stress)
	}
	n.factor, n.spike = 1, 0
	common := 1.0 // the part of the noise that all micro-steps of a round share
	if c.NoiseWithin > 0 {
		common = math.Sqrt(1 - c.NoiseWithin)
	}
	if n.noise > 0 {
		// Normal noise cut at three deviations, which keeps its mean at 1.
		n.factor += n.noise * common * min(max(rng.NormFloat64(), -3), 3)
	}
	if c.Spikes.Rate > 0 {
		chance := c.Spikes.Rate
		if n.spiked && c.Spikes.Again > 0 {
			chance = c.Spikes.Again
		}
		if n.spiked = rng.Float64() < chance; n.spiked {
			n.spike = c.Spikes.Least + c.Spikes.More*rng.ExpFloat64()
			n.factor += n.spike
		}
	}
	if n.away > 0 {
		n.away--
	}
	n.fails = -1
	if c.Failures.Rate > 0 {
		fail, at, silent, length := rng.Float64(), rng.Float64(), rng.Float64(), rng.Float64()
		if fail < c.Failures.Rate {
			n.fails, n.silent, n.absence = at, silent < c.Failures.Silent, geometric(length, c.Failures.Rounds)
		}
	}
}

// geometric maps a uniform number to a number of rounds >= 1 with the given mean.
func geometric(u, mean float64) int {
	if mean <= 1 {
		return 1
	}
	return 1 + int(min(math.Log(1-u)/math.Log1p(-1/mean), 1<<40))
}
