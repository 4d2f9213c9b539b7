package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// anytime is Anytime MiniBatch (Ferdinand, Al-Lawati, Draper and Nokleby, ICLR 2019): all
// nodes compute for the same fixed time and hand in what they have done, weighted by
// samples. The time is the one in which a global batch is expected. Deviations: it follows
// from the rates of the first rounds, not from a model of the nodes, and an unfinished
// micro-step is lost (in the paper, gradients are computed one by one).
type anytime struct {
	cluster *cluster.Cluster
	steps   Steps
	factor  float64
	nominal []cluster.Performance
	rates   rates
	rounds  int
	fixed   float64 // seconds
	alloc   cluster.Allocator
}

// anytimeRounds is the number of rounds that set the fixed time.
const anytimeRounds = 20

// NewAnytime returns Anytime MiniBatch; factor multiplies the time in which a global batch
// is expected.
func NewAnytime(c *cluster.Cluster, factor float64, steps Steps) agent.Policy {
	return &anytime{cluster: c, steps: steps, factor: factor, nominal: c.Nominal(), rates: rates{0.1, make([]float64, len(c.Nodes))}}
}

func (p *anytime) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if _, err := p.alloc.Allocate(p.cluster, present, p.nominal, plan.Sizes); err != nil {
		return err
	}
	if p.rounds <= anytimeRounds {
		p.rates.observe(report)
		p.fixed = p.factor * p.rates.expected(p.cluster, p.nominal, nil, p.cluster.GlobalBatch)
		p.rounds++
	}
	p.steps.timed(plan, p.fixed)
	return nil
}
