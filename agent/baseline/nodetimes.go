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

// rates is the samples per second of every node, as moving averages.
type rates struct {
	gain float64
	rate []float64 // 0: not measured yet
}

func (r *rates) observe(report *cluster.Report) {
	if report == nil {
		return
	}
	for i := range report.Nodes {
		if n := &report.Nodes[i]; n.Measured() {
			v := float64(n.Size) / max(n.Seconds, report.Wait.Seconds()) // what it idles at the end is part of its rate
			if r.rate[i] == 0 {
				r.rate[i] = v
			}
			r.rate[i] += r.gain * (v - r.rate[i])
		}
	}
}

// expected is the time in which those present do a number of samples at these rates, one
// without a measurement at that of its profile.
func (r *rates) expected(c *cluster.Cluster, nominal []cluster.Performance, present []bool, samples int) float64 {
	sum := 0.0
	for i := range c.Nodes {
		if present != nil && !present[i] {
			continue
		}
		v := r.rate[i]
		if full := min(c.Nodes[i].Full(), c.GlobalBatch); v == 0 {
			v = float64(full) / c.Nodes[i].Finish(nominal[i], full)
		}
		sum += v
	}
	return float64(samples) / max(sum, 1e-300)
}
