package env

import "math"

// Features is the width of an observation row.
const Features = 45

// Objectives are the components of the reward vector, in order: speed, waiting,
// freshness, energy.
const Objectives = 4

// horizon is where counters of rounds stop: a run that lasts longer than training
// episodes must not look like anything new.
const horizon = 200

// Rows writes one observation row per node, row-major, into dst (grown if needed):
// the node's gradient and its time, the belief with its residuals, what the fleet did,
// and the weights of the objectives. The entries have no units, so the same network
// serves any device, workload and number of nodes.
func (t *Tracker) Rows(dst []float32, weights [Objectives]float64) []float32 {
	need := len(t.nodes) * Features
	if cap(dst) < need {
		dst = make([]float32, need)
	}
	dst = dst[:need]
	f := &t.fleet
	size := float64(len(t.nodes))
	fleetPart := [...]float64{
		f.residual,
		f.absolute - 0.8,
		math.Log1p(1000*f.jumps) / 4,
		clip(math.Log(f.odds()), 6) / 3,
		clip(f.product, 2),
		f.deviation,
		clip(f.excess, 1) * 2,
		f.slow * 2,
		f.missing * 2,
		math.Log(size)/4 - 0.7,
		t.marginUnit() - 1.5,
		math.Log1p(float64(min(t.rounds, horizon)))/3 - 1,
		(1 - t.round.rule.Quorum) * 2,
		min(t.round.rule.Grace, 1) * 2,
		weights[0], weights[1], weights[2], weights[3],
	}
	var fleetRow [len(fleetPart)]float32
	for k, v := range fleetPart {
		fleetRow[k] = float32(v)
	}
	even := float64(t.cluster.GlobalBatch) / size
	for i := range t.nodes {
		n := &t.nodes[i]
		row := dst[i*Features : (i+1)*Features]
		d := n.deviation()
		z := func(value float64) float64 { return clip((value/n.slowdown-1)/d, 8) / 3 }
		newest := n.newest[0]
		if n.count == 0 {
			newest = n.slowdown
		}
		mean4 := (newest + n.newest[1] + n.newest[2] + n.newest[3]) / 4
		second := n.newest[1]
		if n.count == 0 {
			mean4, second = newest, newest
		}
		k := 0
		put := func(v float64) {
			row[k] = float32(v)
			k++
		}
		put(z(newest))
		put(clip(math.Log(newest/n.slowdown), 1.5) * 2)
		put(z(second))
		put(z(mean4) * 2)
		put(clip(n.average, 3))
		put(clip(float64(n.streak)/6, 1.5))
		put(n.logNoise(d) / 1.2)
		put(log1p(n.count)/3 - 1)
		put(1 / (1 + float64(n.calm)/3))
		put(log1p(float64(n.calm))/3 - 1)
		put(z(n.level))
		put(clip(math.Log(n.level/n.slowdown), 1.5) * 2)
		put(clip((n.level/newest-1)/d, 8) / 3)
		put(log1p(n.levels) / 4)
		put(math.Sqrt(n.variance))
		put(n.gain)
		put(n.margin)
		put(clip(n.product, 2))
		put(flag(n.fresh))
		put(flag(n.late))
		put(clip(math.Log(max(float64(n.size), 1)/even), 3) / 2)
		put(clip(math.Sqrt(n.doubtful)/d, 4) / 2)
		put(float64(min(n.rose, 3)) / 2)
		put(n.share - 1)
		put(clip(n.age, 2) - 1)
		overdue := 0.0
		if n.busySize > 0 {
			node := &t.cluster.Nodes[i]
			overdue = n.busy/node.Finish(node.Slowed(n.base, n.slowdown), n.busySize) - 1
		}
		put(flag(n.busySize > 0))
		put(clip(overdue, 2))
		copy(row[k:], fleetRow[:])
	}
	return dst
}

// logNoise is the logarithm of the deviation d over the prior's. fleet.add keeps it for a node that was just measured.
func (n *track) logNoise(d float64) float64 {
	if n.fresh && n.logged != 0 {
		return n.logged
	}
	return math.Log(d / priorDeviation)
}

// logs are math.Log1p of counts up to the horizon.
var logs = func() (l [horizon + 1]float64) {
	for k := range l {
		l[k] = math.Log1p(float64(k))
	}
	return l
}()

// log1p is math.Log1p of a count, which stops at the horizon.
func log1p(count float64) float64 { return logs[int(min(count, horizon))] }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
