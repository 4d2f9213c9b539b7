package env

import (
	"evenkeel/cluster"
)

// rounds holds the value of every rule, learned from the rounds so far. A round shows the times of all nodes, as lower
// bounds for late ones, so it tells the value of every rule, not only of the one in force: no rule has to be tried.
type rounds struct {
	outcomes cluster.Outcomes      `state:"-"` // these three are working memory
	work     []cluster.Delivery    `state:"-"`
	instead  []cluster.Delivery    `state:"-"` // the same with other shares
	means    [][Objectives]float64 // moving averages of the rules' values
	count    float64
	rate     float64 // progress per second, moving average
	rule     cluster.Rule
}

const (
	roundRate = 0.02 // of the moving averages
	maxSeen   = 1024 // most nodes by which a rule is judged: more change little
	lateCost  = 0.3  // of a late sample, because its node's next share is a guess; best of 0.2, 0.3 and 0.4 on clusters of the training split
	overdueAt = 3    // times the expected seconds after which a node counts as silent
)

func newRounds() *rounds {
	return &rounds{rule: cluster.Rule{Quorum: 1}, means: make([][Objectives]float64, len(cluster.Rules))}
}

// progress is what n counted samples are worth, in rounds of the global batch: n times
// the statistical efficiency at the noise scale s, in samples, and its derivative.
func progress(n, batch, s float64) (value, slope float64) {
	if s == 0 {
		return n / batch, 1 / batch
	}
	return n / batch * (s + batch) / (s + n), s * (s + batch) / ((s + n) * (s + n) * batch)
}

// ruleValues writes what the work of a round is worth under every rule, by objective:
//
//	speed      progress + that of the late gradients - that of the work they displace - their cost - rate x wait
//	waiting    minus the idle share of the nodes' time
//	freshness  minus the share of the global batch that will be accepted late
//	energy     minus the joules per counted sample over those of waiting for all, + 1; 0 where no power is known
//
// rate is the progress that a second costs: the rule with the largest such speed has the
// most progress per second (Dinkelbach 1967).
func ruleValues(dst [][Objectives]float64, o *cluster.Outcomes, nodes, batch, scale, rate float64) {
	joules := o.Under(cluster.Rules[len(cluster.Rules)-1]).PerSample()
	for a, rule := range cluster.Rules {
		out := o.Under(rule)
		dst[a] = [Objectives]float64{
			speedValue(out, batch, scale, rate) - lateCost*out.Late/batch,
			-out.Idle / max(nodes*out.Wait, 1e-9),
			-out.Late / batch,
		}
		if joules > 0 {
			dst[a][3] = 1 - out.PerSample()/joules
		}
	}
}

// speedValue is the progress of a round and of its late gradients, less the work that these displace and the worth of the time.
func speedValue(out cluster.Outcome, batch, scale, rate float64) float64 {
	worth, slope := progress(out.Counted, batch, scale)
	return worth + slope*out.Later - out.Debt/batch - rate*out.Wait
}

// center subtracts the mean over the rules: what all rules have in common does not matter for the choice.
func center(values [][Objectives]float64) {
	var mean [Objectives]float64
	for _, v := range values {
		for o := range v {
			mean[o] += v[o] / float64(len(values))
		}
	}
	for a := range values {
		for o := range mean {
			values[a][o] -= mean[o]
		}
	}
}

// see judges every rule by a round's report, as if the nodes had worked on the given shares; nil: on their own.
func (r *rounds) see(t *Tracker, report *cluster.Report, shares []int) {
	wait := max(report.Wait.Seconds(), 1e-9)
	r.work = r.work[:0]
	stride := 1 + (len(t.nodes)-1)/maxSeen
	taking := 0.0
	for i := 0; i < len(t.nodes); i += stride {
		n, node, got := &t.nodes[i], &t.cluster.Nodes[i], &report.Nodes[i]
		if got.Status == cluster.Lost {
			// A rule that waits for all nodes would have waited in vain until the loss was noticed.
			if silent := n.silent(wait); silent > overdueAt*max(t.fleet.predicted, 1e-9) {
				r.work = append(r.work, cluster.Delivery{At: silent, Took: silent, Power: node.Power})
			}
			continue
		}
		if got.Status == cluster.Absent {
			continue
		}
		w := t.delivery(i, got, wait)
		if shares != nil {
			var takes bool
			if w, takes = t.other(i, got, w, wait, shares[i], n.pace(node, got, node.Cost(got.Size))); !takes {
				continue
			}
		}
		taking++
		r.work = append(r.work, w)
	}
	if taking == 0 {
		return
	}
	r.outcomes.Set(r.work)
	batch := float64(t.cluster.GlobalBatch)
	var buffer [64][Objectives]float64
	values := buffer[:len(cluster.Rules)]
	seen := taking / present(report) // where only some of the nodes are looked at
	ruleValues(values, &r.outcomes, taking, batch*seen, t.scale*seen, r.rate)
	center(values)
	for a := range values {
		for o, v := range values[a] {
			r.means[a][o] += r.weight() * (v - r.means[a][o])
		}
	}
}

// delivery is what node i delivered in a round of wait seconds, and when it will deliver the work under way.
func (t *Tracker) delivery(i int, got *cluster.NodeReport, wait float64) cluster.Delivery {
	n, node, left := &t.nodes[i], &t.cluster.Nodes[i], 0.0
	if got.BusySize > 0 {
		due := node.Finish(node.Slowed(n.base, n.slowdown), got.BusySize)
		left = max(due-got.Busy, 0.2*due)
		if n.overdue(node, got.Busy, got.BusySize) {
			left = 0.2 * got.Busy // the longer it has been silent, the longer it may stay so
		}
	}
	w := cluster.Delivery{At: wait - got.Idle, Took: got.Seconds, Size: got.Size, Behind: got.Behind, Power: node.Power}
	switch {
	case got.Status == cluster.Late:
		w.At, w.Took, w.Behind = wait+left, got.Busy+left, int(min(got.Busy/wait, 1e6))
	case got.BusySize > 0: // older work came in, this round's is under way
		w.At = wait - got.Busy
		w.NextAt, w.NextTook, w.NextSize = wait+left, got.Busy+left, got.BusySize
	case got.Behind == 0 && got.Aged > 0: // both came in
		w.NextAt, w.NextTook, w.NextSize = w.At, got.Seconds, got.Size
		w.At, w.Took, w.Size, w.Behind = w.At-got.Seconds, got.Seconds, got.Aged, 1
	}
	return w
}

// pace updates the progress per second with a round.
func (r *rounds) pace(t *Tracker, report *cluster.Report) {
	if present(report) == 0 {
		return
	}
	r.count++
	worth, _ := progress(report.Counted, float64(t.cluster.GlobalBatch), t.scale)
	r.rate += r.weight() * (worth/max(report.Wait.Seconds(), 1e-9) - r.rate)
}

// weight is that of the newest round in the moving averages.
func (r *rounds) weight() float64 { return max(roundRate, 1/r.count) }

// present is the number of nodes that hold the global batch.
func present(report *cluster.Report) float64 {
	n := 0.0
	for i := range report.Nodes {
		if s := report.Nodes[i].Status; s != cluster.Absent && s != cluster.Lost {
			n++
		}
	}
	return n
}

// Means are the moving averages of the rules' values, in the order of cluster.Rules,
// centred over the rules; valid until the next report.
func (t *Tracker) Means() [][Objectives]float64 { return t.round.means }

// Rule is the rule by which the next round is collected.
func (t *Tracker) Rule() cluster.Rule { return t.round.rule }

// SetRule sets the rule by which the next round is collected.
func (t *Tracker) SetRule(c cluster.Collect, nodes int) {
	r := cluster.Rule{Quorum: float64(c.Quorum.Of(nodes)) / float64(max(nodes, 1)), Grace: c.GraceShare}
	if t.finish > 0 {
		r.Grace += c.Grace.Seconds() / t.finish
	}
	t.round.rule = r
}

// overdue says whether a node has been at a share for so long that it is silent rather than
// slow. It compares with measurements, because the belief follows overdue work.
func (n *track) overdue(node *cluster.Node, busy float64, share int) bool {
	slowdown := n.slowdown
	if n.count > 0 {
		slowdown = max(n.level, n.newest[0])
	}
	return busy > overdueAt*node.Finish(node.Slowed(n.base, slowdown), share)
}

// Silent is how many of the nodes present have computed for so much longer than expected
// that no round should wait for them: a quorum is a share of the others.
func (t *Tracker) Silent(present []bool) int {
	silent := 0
	for i := range t.nodes {
		n, node := &t.nodes[i], &t.cluster.Nodes[i]
		if n.busySize > 0 && (present == nil || present[i]) && n.overdue(node, n.busy, n.busySize) {
			silent++
		}
	}
	return silent
}

// BestRule is the index of the rule, among those allowed, with the highest weighted
// average value.
func (t *Tracker) BestRule(allowed []int, weights [Objectives]float64) int {
	value := func(a int) float64 {
		v := 0.0
		for o, w := range weights {
			v += float64(w * t.round.means[a][o]) // rounded: no fused multiply-add
		}
		return v
	}
	best := allowed[0]
	for _, a := range allowed {
		if value(a) > value(best) {
			best = a
		}
	}
	return best
}
