package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/gradient"
)

// dbw chooses for every round the number K of gradients to wait for, as dynamic backup
// workers do (Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine
// learning", IFIP Networking 2020; written from its abstract and memory): the K with the
// highest estimated gain of a step per estimated second, learned from earlier rounds without
// trying out any K. Deviations:
//
//   - The paper's gain is a bound on the loss from the learning rate, the loss's curvature
//     and the norm and variance of the gradients. A tuner sees only the last two, as the
//     noise scale; with the learning rate that suits each K best the bound is
//     n/(n+scale) for the n samples of the first K, averaged over the arrivals seen, as
//     nodes have different sizes. Late gradients are not lost here; the flag late says
//     whether they count.
//   - The paper estimates the time of the k-th arrival for every number h that the round
//     before had waited for, by least squares under the constraint that it rises with k
//     and falls with h. Here late nodes' times become known when they deliver. A round
//     gives the times of all k, which rise by themselves, so moving averages of them are
//     enough. Averages kept by h did worse: a K that was unlucky once was not tried again.
//   - K goes in steps of 1/32 of the nodes.
//   - Sizes are water-filling's.
type dbw struct {
	*waterFill
	arrivals arrivals
	noise    gradient.NoiseScale
	rate     float64 // of the averages
	late     bool    // late work counts
	rounds   float64
	ranks    [dbwRanks]dbwRank
}

// dbwRank is the outcome of waiting for one K.
type dbwRank struct {
	seconds float64
	samples float64 // with the counted share of late work
}

const dbwRanks = 32

// NewDBW returns dynamic backup workers. The averages reach back over about window rounds.
// With late, late gradients count as far as they are worth something.
func NewDBW(c *cluster.Cluster, window int, late bool, fill WaterFill) agent.Policy {
	return &dbw{waterFill: newWaterFill(c, fill), rate: 1 / float64(window), late: late}
}

func (p *dbw) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.noise.Add(report)
		p.arrivals.add(report)
		for r := p.arrivals.next(); r != nil; r = p.arrivals.next() {
			p.learn(r)
		}
	}
	plan.Collect = p.choose().Apply(plan.Collect)
	return p.waterFill.Decide(report, present, plan)
}

// dbwRule waits for the K of rank k.
func dbwRule(k int) cluster.Rule { return cluster.Rule{Quorum: float64(k+1) / dbwRanks} }

// learn updates the averages with the arrivals of a round.
func (p *dbw) learn(r *arrivalRound) {
	if len(r.sorted) == 0 {
		return
	}
	p.rounds++
	rate := max(p.rate, 1/p.rounds)
	for k := range p.ranks {
		first := cluster.Quorum{Share: dbwRule(k).Quorum}.Of(len(r.sorted))
		end := r.sorted[first-1].at
		p.ranks[k].seconds += rate * (end - p.ranks[k].seconds)
		p.ranks[k].samples += rate * (r.counted(end, first, p.late) - p.ranks[k].samples)
	}
}

// choose returns the rule that gains most per second; the first one waits for all.
func (p *dbw) choose() cluster.Rule {
	best, most := dbwRanks-1, 0.0
	for k := range p.ranks {
		if g := worth(&p.noise, p.ranks[k].samples) / max(p.ranks[k].seconds, 1e-9); g > most {
			best, most = k, g
		}
	}
	return dbwRule(best)
}
