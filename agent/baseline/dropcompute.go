package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// dropCompute limits the time of a round, as DropCompute does (Giladi et al., "DropCompute:
// simple and more robust distributed synchronous training via compute variance reduction",
// NeurIPS 2023): the threshold is the one with the highest effective speed over measured
// times, samples done by it over the time until it or until all are done. Deviations:
//
//   - There, a node stops at the threshold and hands in the micro-steps it has done; the
//     others are lost. Here a node's work is one piece: beyond the threshold it comes late
//     and counts less. The flag late says whether the effective speed counts it.
//   - Rounds here end a grace after half of the nodes are in, so the threshold is a
//     multiple of the time that half of the nodes took.
//   - The threshold is chosen every round from the last rounds, not once.
//   - Sizes are water-filling's, not equal.
type dropCompute struct {
	*waterFill
	arrivals arrivals
	window   [][2 * dropThresholds]float64 // samples and seconds under every threshold, of the last rounds
	oldest   int
	late     bool // late work counts
}

const (
	dropThresholds = 32
	dropQuorum     = 0.5
)

// dropGraces are the thresholds, beyond the time of half of the nodes and as a share of
// it. The last one waits for all.
var dropGraces = func() (g [dropThresholds]float64) {
	for k := range g {
		x := float64(k) / (dropThresholds - 2)
		g[k] = 0.25*x + 7.75*x*x*x*x // dense where most nodes arrive; up to nine times half the nodes' time
	}
	return g
}()

// NewDropCompute returns DropCompute, which looks back over window rounds. With late, late
// gradients count as far as they are worth something.
func NewDropCompute(c *cluster.Cluster, window int, late bool, fill WaterFill) agent.Policy {
	return &dropCompute{waterFill: newWaterFill(c, fill), window: make([][2 * dropThresholds]float64, 0, window), late: late}
}

func (p *dropCompute) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.arrivals.add(report)
		for r := p.arrivals.next(); r != nil; r = p.arrivals.next() {
			p.learn(r)
		}
	}
	plan.Collect = p.choose().Apply(plan.Collect)
	return p.waterFill.Decide(report, present, plan)
}

// learn adds the arrivals of a round to the window.
func (p *dropCompute) learn(r *arrivalRound) {
	n := len(r.sorted)
	if n == 0 {
		return
	}
	if len(p.window) < cap(p.window) {
		p.window = append(p.window, [2 * dropThresholds]float64{})
	}
	w := &p.window[p.oldest]
	p.oldest = (p.oldest + 1) % cap(p.window)
	half := r.sorted[cluster.Quorum{Share: dropQuorum}.Of(n)-1].at
	seen := 0
	for k, grace := range dropGraces {
		end := half * (1 + grace)
		if k == dropThresholds-1 {
			end = r.sorted[n-1].at
		}
		for seen < n && r.sorted[seen].at <= end {
			seen++
		}
		w[2*k], w[2*k+1] = r.counted(end, seen, p.late), min(end, r.sorted[n-1].at)
	}
}

// choose returns the rule with the highest effective speed; of several the longest.
func (p *dropCompute) choose() cluster.Rule {
	best, most := dropThresholds-1, 0.0
	for k := dropThresholds - 1; k >= 0; k-- {
		samples, seconds := 0.0, 0.0
		for i := range p.window {
			samples += p.window[i][2*k]
			seconds += p.window[i][2*k+1]
		}
		if v := samples / max(seconds, 1e-9); v > most {
			best, most = k, v
		}
	}
	if best == dropThresholds-1 {
		return cluster.Rule{Quorum: 1}
	}
	return cluster.Rule{Quorum: dropQuorum, Grace: dropGraces[best]}
}
