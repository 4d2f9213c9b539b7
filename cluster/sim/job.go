package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
)

// jobStream is the stream of the generator that draws what the nodes of a run have in common.
const jobStream = 1 << 42

// ofRun draws the levels of cluster.Job for one run and returns the conditions at these levels.
// It draws all of them, so that the parts do not change one another.
func ofRun(c *cluster.Conditions, seed uint64) cluster.Conditions {
	rng := rand.New(rand.NewPCG(seed, jobStream))
	var z [4]float64
	for i := range z {
		z[i] = rng.NormFloat64()
	}
	return c.DrawJob(z)
}

// advance moves every node to its next round.
func (s *Simulator) advance() {
	for i := range s.nodes {
		s.nodes[i].advance(&s.conditions)
	}
	s.slow()
}

// slow applies the slowdowns of the run as a whole to the nodes in the coming round.
func (s *Simulator) slow() {
	s.straggler.slow(&s.conditions.Straggler, s.nodes)
	s.replay.slow(s.nodes)
}

// straggler is the one slow node of a run. It has a generator of its own, so that the
// nodes' other draws stay the same.
type straggler struct {
	pcg    rand.PCG
	node   int     // below 0: the run has none
	level  float64 // standard normal, as is wander
	wander float64 // an Ornstein-Uhlenbeck process
}

func newStraggler(c *cluster.Straggler, seed uint64, nodes int) straggler {
	s := straggler{node: -1}
	s.pcg.Seed(seed, jobStream+1)
	rng := rand.New(&s.pcg)
	chance, node := rng.Float64(), rng.IntN(max(nodes, 1))
	s.level, s.wander = rng.NormFloat64(), rng.NormFloat64()
	if chance < c.Chance && nodes > 0 {
		s.node = node
	}
	return s
}

// slow slows the straggler in the coming round, and draws its excess for the round after.
func (s *straggler) slow(c *cluster.Straggler, nodes []node) {
	if s.node < 0 {
		return
	}
	nodes[s.node].slowdown *= c.Slowdown(s.level, s.wander)
	if c.SD > 0 {
		keep := math.Exp(-1 / c.Rounds)
		s.wander = keep*s.wander + math.Sqrt(1-keep*keep)*rand.New(&s.pcg).NormFloat64()
	}
}
