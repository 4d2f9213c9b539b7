package history

import "github.com/evenkeel/evenkeel/cluster"

// even are equal shares of the global batch, as far as the nodes' micro-batches allow.
func even(c *cluster.Cluster) []int {
	n := len(c.Nodes)
	even := make([]int, n)
	for i := range even {
		share := c.GlobalBatch / n
		if i < c.GlobalBatch%n {
			share++
		}
		even[i] = c.Nodes[i].MostShare(max(share, c.Nodes[i].LeastShare()))
	}
	return even
}

// predict says how many samples a round of equal shares would have had, and how long it would have taken; 0: not known.
// What a node took in this round is scaled to its equal share by the form of its line; of a node that was not measured
// now the parameters speak, and one that never was is left out. What the round took beyond its slowest node
// (communication, the optimizer) would have been the same.
func (h *History) predict(perf []cluster.Performance, report *cluster.Report) (samples, seconds float64) {
	slowest := 0.0
	for i := range report.Nodes {
		n, r := &h.cluster.Nodes[i], &report.Nodes[i]
		p := perf[i]
		switch {
		case r.Measured():
			slowest = max(slowest, r.Seconds)
			p = n.Slowed(p, n.Slowness(p, r))
		case h.paces[i].measured == 0 && n.Profile == nil:
			continue
		}
		if h.even[i] > 0 {
			samples += float64(h.even[i])
			seconds = max(seconds, n.Finish(p, h.even[i]))
		}
	}
	if slowest == 0 {
		return 0, 0
	}
	return samples, seconds + max(report.Wait.Seconds()-slowest, 0)
}
