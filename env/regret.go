package env

import "github.com/evenkeel/evenkeel/cluster"

// Regret is by how much more a round would have brought had its nodes been handed other shares, 0 for none: progress less
// what the time is worth, in rounds of the global batch, under the rule that was in force. Call it with the newest
// report, after Observe and before the next rule is set. It is not known where a node was lost, or would
// have got a share and had none.
func (t *Tracker) Regret(report *cluster.Report, shares []int) (regret float64, known bool) {
	wait := max(report.Wait.Seconds(), 1e-9)
	r := t.round
	r.work, r.instead = r.work[:0], r.instead[:0]
	for i := range t.nodes {
		got, node := &report.Nodes[i], &t.cluster.Nodes[i]
		n := &t.nodes[i]
		if got.Status == cluster.Lost || got.Status == cluster.Absent && shares[i] > 0 {
			return 0, false
		}
		if got.Status == cluster.Absent || got.BusySize > 0 && n.overdue(node, got.Busy, got.BusySize) {
			continue // nobody waits for one that is silent, whatever its share
		}
		w := t.delivery(i, got, wait)
		if got.Status == cluster.Late && got.Busy <= wait*(1+1e-9) {
			w.Behind = 0 // it is at this round's work
		}
		slowdown := n.slowdown
		if got.Measured() {
			slowdown = node.Slowness(n.base, got)
		}
		if w.Size == 0 && w.NextSize == 0 {
			if shares[i] > 0 {
				return 0, false
			}
			continue
		}
		r.work = append(r.work, w)
		if w, takes := other(w, node, node.Slowed(n.base, slowdown), shares[i]); takes {
			r.instead = append(r.instead, w)
		}
	}
	batch := float64(t.cluster.GlobalBatch)
	value := func(work []cluster.Delivery) float64 {
		r.outcomes.Set(work)
		return speedValue(r.outcomes.Under(r.rule), batch, t.scale, r.rate)
	}
	if len(r.work) == 0 || len(r.instead) == 0 {
		return 0, false
	}
	return value(r.instead) - value(r.work), true
}

// other is a delivery of a node had it been handed another share of this round, and false where it would have had nothing to
// do. Work of an earlier round stays as it is.
func other(w cluster.Delivery, node *cluster.Node, perf cluster.Performance, share int) (cluster.Delivery, bool) {
	longer := func(took float64, size int) float64 { // took, for share samples instead of size
		return took * node.Finish(perf, share) / node.Finish(perf, size)
	}
	switch {
	case w.NextSize > 0:
		took := longer(w.NextTook, w.NextSize)
		w.NextAt, w.NextTook, w.NextSize = w.NextAt-w.NextTook+took, took, share
	case w.Behind == 0:
		took := longer(w.Took, w.Size)
		w.At, w.Took, w.Size = w.At-w.Took+took, took, share
	}
	return w, w.Size > 0 || w.NextSize > 0
}
