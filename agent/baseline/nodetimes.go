package baseline

import (
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
)

// times holds how long the nodes took for their shares in the last rounds, over the
// predicted finish time.
type times struct {
	rounds [][]float64 // sorted; the oldest is replaced
	next   int
	finish float64 // predicted of the coming round, in seconds
}

// newTimes looks back over window rounds.
func newTimes(window int) times { return times{rounds: make([][]float64, 0, window)} }

// add takes in a round of shares that were predicted to take t.finish seconds. A node that
// was stopped before its share was done would have taken as long in proportion.
func (t *times) add(c *cluster.Cluster, report *cluster.Report, sizes []int) {
	if report == nil || t.finish <= 0 {
		return
	}
	var round []float64
	for i := range report.Nodes {
		n, node := &report.Nodes[i], &c.Nodes[i]
		if !n.Measured() || sizes[i] == 0 {
			continue
		}
		compute := max(n.Seconds-node.Network, 0) * node.Cost(sizes[i]) / max(node.Cost(n.Size), 1e-300)
		round = append(round, (node.Network+compute)/t.finish)
	}
	if len(round) == 0 {
		return
	}
	slices.Sort(round)
	if len(t.rounds) < cap(t.rounds) {
		t.rounds = append(t.rounds, round)
		return
	}
	t.rounds[t.next] = round
	t.next = (t.next + 1) % len(t.rounds)
}
