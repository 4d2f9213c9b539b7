package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
)

// outageStream is the first stream of the generators of outages. Every node and kind of outage has its own, so that
// the node's other draws stay the same.
const outageStream = 1 << 45

// outage is a node's state in one kind of cluster.Outage.
type outage struct {
	pcg    rand.PCG
	rate   float64 // starts per round; 0: this node has none
	rounds float64 // mean length
	left   int     // rounds; below 0: it does not end
}

func newOutages(kinds []cluster.Outage, seed uint64, index int) []outage {
	if len(kinds) == 0 {
		return nil
	}
	all := make([]outage, len(kinds))
	for k := range kinds {
		o, kind := &all[k], &kinds[k]
		o.pcg.Seed(seed, outageStream+uint64(index)<<8+uint64(k))
		rng := rand.New(&o.pcg)
		has, often, long := rng.Float64() < kind.Share, rng.NormFloat64(), rng.NormFloat64()
		if has {
			o.rate = min(kind.Rate*math.Exp(kind.Spread*often), 1)
		}
		o.rounds = max(kind.Rounds*math.Exp(kind.Spread*long), 1)
	}
	return all
}

// advance moves to the next round and says whether the node has an outage in it.
func (o *outage) advance(kind *cluster.Outage) bool {
	rng := rand.New(&o.pcg)
	switch {
	case o.left < 0:
	case o.left > 0:
		o.left--
	case rng.Float64() < o.rate:
		last, length := rng.Float64(), rng.Float64()
		if o.left = geometric(length, o.rounds); last < kind.Lasting {
			o.left = -1
		}
	}
	return o.left != 0
}

// advanceOutages applies the node's outages to the coming round.
func (n *node) advanceOutages(kinds []cluster.Outage) {
	n.mute = false
	for k := range n.outages {
		switch slow := kinds[k].Slowdown; {
		case !n.outages[k].advance(&kinds[k]):
		case slow == 0:
			n.mute = true
		default:
			n.slowdown *= slow
		}
	}
}
