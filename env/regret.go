package env

import "evenkeel/cluster"

// AsIs in place of a share stands for what the node did in the round.
const AsIs = -1

// Play is a controller's choice for a round: each node's share, and when the round ends.
type Play struct {
	Shares []int
	Rule   cluster.Rule
}

// Regret is how much more a round would have brought with instead than with decided: progress less the worth of the time,
// in rounds of the global batch; 0 if they are equal. Call it with the newest report, after Observe. known is false if a node
// with a share was lost or did not take part, or if no node had work.
func (t *Tracker) Regret(report *cluster.Report, decided, instead Play) (regret float64, known bool) {
	report = t.pauses.without(report)
	wait := max(report.Wait.Seconds(), 1e-9)
	r := t.round
	r.work, r.instead = r.work[:0], r.instead[:0]
	for i := range t.nodes {
		got, node := &report.Nodes[i], &t.cluster.Nodes[i]
		n := &t.nodes[i]
		if got.Status == cluster.Lost || got.Status == cluster.Absent {
			if decided.Shares[i] == AsIs && instead.Shares[i] == AsIs {
				continue
			}
			return 0, false
		}
		if got.BusySize > 0 && n.overdue(node, got.Busy, got.BusySize) {
			continue // no round waits for a silent node, whatever its share
		}
		perf := n.pace(node, got, n.work)
		w := t.delivery(i, got, wait)
		a, takes := t.other(i, got, w, wait, decided.Shares[i], perf)
		if takes {
			r.work = append(r.work, a)
		}
		if instead.Shares[i] != decided.Shares[i] {
			a, takes = t.other(i, got, w, wait, instead.Shares[i], perf)
		}
		if takes {
			r.instead = append(r.instead, a)
		}
	}
	batch := float64(t.cluster.GlobalBatch)
	value := func(work []cluster.Delivery, rule cluster.Rule) float64 {
		r.outcomes.Set(work)
		return speedValue(r.outcomes.Under(rule), batch, t.scale, r.rate)
	}
	if len(r.work) == 0 || len(r.instead) == 0 {
		return 0, false
	}
	return value(r.instead, instead.Rule) - value(r.work, decided.Rule), true
}

// pace returns the node's performance parameters as a round showed them. work is the measured work (Node.Cost); without a
// measurement the parameters are those believed.
func (n *track) pace(node *cluster.Node, got *cluster.NodeReport, work float64) cluster.Performance {
	slowdown := n.slowdown
	if got.Measured() {
		slowdown = node.SlownessOf(n.base, work, got.Seconds)
	}
	return node.Slowed(n.base, slowdown)
}

// other returns what node i would have delivered with another share, at its pace, in a round of wait seconds; false if it
// would have had no work. Work of an earlier round stays as it is.
func (t *Tracker) other(i int, got *cluster.NodeReport, w cluster.Delivery, wait float64, share int, perf cluster.Performance) (cluster.Delivery, bool) {
	if share == AsIs {
		return w, w.Size > 0 || w.NextSize > 0
	}
	node := &t.cluster.Nodes[i]
	longer := func(took float64, size int) float64 { // took, for share samples instead of size
		return took * node.Finish(perf, share) / node.Finish(perf, size)
	}
	switch {
	case w.NextSize > 0:
		took := longer(w.NextTook, w.NextSize)
		w.NextAt, w.NextTook, w.NextSize = w.NextAt-w.NextTook+took, took, share
	case w.Size > 0 && (w.Behind == 0 || got.Status == cluster.Late && got.Busy <= wait*(1+1e-9)): // it is at this round's work
		took := longer(w.Took, w.Size)
		w.At, w.Took, w.Size, w.Behind = w.At-w.Took+took, took, share, 0
	}
	return w, w.Size > 0 || w.NextSize > 0
}
