package baseline

import (
	"math"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// GraceWindow configures the quorum with an adaptive grace of Decoupled DiLoCo.
type GraceWindow struct {
	Quorum float64 // K, as a share of the nodes
	Steps  float64 // tau: a typical node's times that a round may take
	Use    float64 // gamma, (0, 1]: the part of the slack that is waited
}

// graceWindow is the rule of Decoupled DiLoCo's syncer (Douillard et al., arXiv 2604.21428,
// eq. 3): it waits for K learners, then for as much longer as costs nothing, which is
// gamma x (tau x step time - time of the quorum - time of the exchange), at least 0. Unlike kofn's grace,
// a fixed share of the quorum's time, it shrinks where the quorum itself was late. The abstract was read, which names
// a minimum quorum and an adaptive grace window; the equation was not read in its source. Deviations:
//
//   - There a learner goes on for tau steps while its fragment is merged, so the wait is free up
//     to then. Here nodes wait for the round: tau x the typical node's time is when it is to end
//     at the latest, and tau is tuned.
//   - Times are those of a node's whole share, moving averages over rounds; the exchange
//     is part of them, as arrivals are what is measured.
//   - What comes late is taken in a later round, by the round rule, and counts less; fragments do
//     not exist. Weights are by samples, as everywhere here; there by tokens.
//   - Shares are water-filling's, and K is tuned, not 1.
type graceWindow struct {
	*waterFill
	config   GraceWindow
	arrivals arrivals
	step     float64 // seconds of a typical node; 0: not known yet
	quorum   float64 // seconds until the quorum was in
}

// graceRate is the rate of the moving averages.
const graceRate = 0.1

// NewGraceWindow returns the rule.
func NewGraceWindow(c *cluster.Cluster, config GraceWindow, fill WaterFill) agent.Policy {
	return &graceWindow{waterFill: newWaterFill(c, fill), config: config}
}

func (p *graceWindow) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.arrivals.add(report)
		for r := p.arrivals.next(); r != nil; r = p.arrivals.next() {
			p.learn(r)
		}
	}
	plan.Collect = cluster.Rule{Quorum: 1}.Apply(plan.Collect)
	if p.step > 0 {
		plan.Collect.Quorum = cluster.Quorum{Share: p.config.Quorum}
		slack := p.config.Use * (p.config.Steps*p.step - p.quorum)
		plan.Collect.Grace = time.Duration(min(max(slack, 0)*1e9, math.MaxInt64/2))
	}
	return p.waterFill.Decide(report, present, plan)
}

// learn takes in the arrivals of a round.
func (p *graceWindow) learn(r *arrivalRound) {
	n := len(r.sorted)
	if n == 0 {
		return
	}
	step, quorum := r.sorted[n/2].at, r.sorted[cluster.Quorum{Share: p.config.Quorum}.Of(n)-1].at
	if p.step == 0 {
		p.step, p.quorum = step, quorum
		return
	}
	p.step += graceRate * (step - p.step)
	p.quorum += graceRate * (quorum - p.quorum)
}
