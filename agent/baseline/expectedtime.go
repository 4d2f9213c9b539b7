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

// held moves the deadline of a rule as Evenkeel does its own.
type held struct{ agent.Policy }

// NewHeld returns a rule that ends rounds by time with its times multiplied by a factor that
// holds the samples of a round at the global batch in the mean. So rules can be compared at
// equal batches.
func NewHeld(p agent.Policy) agent.Policy { return held{p} }

func (h held) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if err := h.Policy.Decide(report, present, plan); err != nil {
		return err
	}
	plan.Finish = plan.Collect.Deadline.Seconds()
	plan.Collect.Deadline, plan.Collect.AutoDeadline = 0, true
	return nil
}

func (p *expectedTime) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.rates.observe(report)
	if _, err := p.alloc.Allocate(p.cluster, present, p.nominal, plan.Sizes); err != nil {
		return err
	}
	p.steps.timed(plan, p.rates.expected(p.cluster, p.nominal, present, p.cluster.GlobalBatch))
	return nil
}
