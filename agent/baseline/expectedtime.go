package baseline

import (
	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// expectedTime is the rule of hivemind's progress_tracker.py: peers accumulate until all together
// have the global batch, which is expected after the remaining samples over the sum of
// the moving averages of their rates. Deviation: the time is foreseen when the round
// opens, not corrected as peers report in its course.
type expectedTime struct {
	cluster *cluster.Cluster
	steps   Steps
	nominal []cluster.Performance
	rates   rates
	alloc   cluster.Allocator
}

// NewExpectedTime returns hivemind's rule; gain is that of the moving averages (there: 0.1).
func NewExpectedTime(c *cluster.Cluster, gain float64, steps Steps) agent.Policy {
	return &expectedTime{cluster: c, steps: steps, nominal: c.Nominal(), rates: rates{gain, make([]float64, len(c.Nodes))}}
}

func (p *expectedTime) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.rates.observe(report)
	if _, err := p.alloc.Allocate(p.cluster, present, p.nominal, plan.Sizes); err != nil {
		return err
	}
	p.steps.timed(plan, p.rates.expected(p.cluster, p.nominal, present, p.cluster.GlobalBatch))
	return nil
}
