package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
)

// Control runs a policy on a cluster, round by round. It is the loop of the method, the
// same for the simulator and for live workers.
type Control struct {
	Cluster *cluster.Cluster
	Runner  cluster.Runner
	Policy  Policy
	Clock   func() time.Time // measures decisions; nil: they are not measured

	plan   cluster.Plan
	report *cluster.Report
}

// Round is what one round of control did.
type Round struct {
	Plan     cluster.Plan    // as carried out; its sizes are valid until the next round
	Report   *cluster.Report // valid until the next round
	Decision time.Duration   // time the policy took; 0 without a clock
}

// Round decides, hands out and collects once. When the remaining nodes cannot hold the
// global batch, each gets as much as it can hold: a smaller round is better than none.
func (c *Control) Round(ctx context.Context) (Round, error) {
	if c.plan.Sizes == nil {
		c.plan.Sizes = make([]int, len(c.Cluster.Nodes))
	}
	c.plan.Collect = c.Cluster.Collect
	var begun time.Time
	if c.Clock != nil {
		begun = c.Clock()
	}
	present := c.Runner.Present()
	switch err := c.Policy.Decide(c.report, present, &c.plan); {
	case errors.Is(err, cluster.ErrCapacity):
		for i := range c.plan.Sizes {
			c.plan.Sizes[i] = 0
			if present[i] {
				c.plan.Sizes[i] = min(c.Cluster.Nodes[i].Limit, c.Cluster.GlobalBatch)
			}
		}
	case err != nil:
		return Round{}, fmt.Errorf("agent: decide: %w", err)
	}
	r := Round{Plan: c.plan}
	if c.Clock != nil {
		r.Decision = c.Clock().Sub(begun)
	}
	report, err := c.Runner.Round(ctx, c.plan)
	if err != nil {
		return Round{}, fmt.Errorf("agent: %w", err)
	}
	c.report, r.Report = report, report
	return r, nil
}
