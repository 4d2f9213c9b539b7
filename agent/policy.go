package agent

import (
	"github.com/evenkeel/evenkeel/cluster"
)

// Policy turns reports into the micro-batches of the next round.
//
// A Policy belongs to one run and one goroutine. Decide gets the report of the round
// before (nil before the first), which nodes are present, and writes one size per
// node; every implementation here keeps every memory limit and meets the global batch.
type Policy interface {
	Decide(report *cluster.Report, present []bool, sizes []int) error
}

// TruthSource is a Runner that knows its nodes' real state: the simulator.
type TruthSource interface {
	Truth() cluster.Truth
}

// slowdown is the newest measurement of node i: its time without the constant
// overhead over what its profile says (over its size, where none is known), and
// whether there is one.
func slowdown(n *cluster.Node, overhead float64, r *cluster.NodeReport) (float64, bool) {
	if !r.Measured() {
		return 0, false
	}
	return max(r.Seconds-overhead, 0.01*r.Seconds) / work(n, r.Size), true
}

// work is what a slowdown multiplies: the profile's seconds, or the size itself.
func work(n *cluster.Node, size int) float64 {
	if n.Profile != nil {
		return n.Profile.Seconds(float64(size))
	}
	return float64(size)
}
