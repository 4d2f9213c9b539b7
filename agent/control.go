package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	plan     cluster.Plan
	report   *cluster.Report
	parts    *participation
	deadline deadline
}

// Omniscient marks a policy that knows the nodes' true state: a bound. It decides by itself
// who takes part.
type Omniscient interface{ Omniscient() }

// Round is what one round of control did.
type Round struct {
	Plan     cluster.Plan    // as carried out; its sizes are valid until the next round
	Report   *cluster.Report // valid until the next round
	Decision time.Duration   // time the policy took; 0 without a clock
}

// Round decides, hands out and collects once. When the remaining nodes cannot make up the
// global batch, each gets an even part, as far as it can: a smaller round is better than none. Nodes
// that the policy leaves out, and those whose gradients did not come twice in a row, are
// tried again after a growing number of rounds.
func (c *Control) Round(ctx context.Context) (Round, error) {
	if c.plan.Sizes == nil {
		c.plan.Sizes = make([]int, len(c.Cluster.Nodes))
		c.parts = newParticipation(len(c.Cluster.Nodes))
	}
	if c.report != nil {
		c.deadline.observe(c.report, &c.plan)
		c.parts.observe(c.report, c.plan.Finish)
	}
	c.plan.Collect, c.plan.Perf, c.plan.Finish = c.Cluster.Collect, nil, 0
	var begun time.Time
	if c.Clock != nil {
		begun = c.Clock()
	}
	present := c.Runner.Present()
	if err := c.decide(present); err != nil {
		return Round{}, fmt.Errorf("agent: decide: %w", err)
	}
	c.deadline.set(c.Cluster, &c.plan)
	c.parts.probe(&c.plan)
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

// decide plans the round for the nodes present.
func (c *Control) decide(present []bool) error {
	_, knows := c.Policy.(Omniscient)
	allowed := present
	if !knows {
		if allowed = c.parts.among(present); !slices.Contains(allowed, true) {
			allowed = present // nobody else is left
		}
	}
	switch err := c.Policy.Decide(c.report, allowed, &c.plan); {
	case errors.Is(err, cluster.ErrCapacity):
		nodes := count(allowed)
		for i := range c.plan.Sizes {
			c.plan.Sizes[i] = 0
			if n := &c.Cluster.Nodes[i]; allowed[i] {
				c.plan.Sizes[i] = n.MostShare(max(c.Cluster.GlobalBatch/nodes, n.LeastShare()))
			}
		}
	case err != nil:
		return err
	}
	if !knows {
		c.parts.settle(c.Cluster, present, &c.plan)
	}
	return nil
}

// count is how many are true.
func count(present []bool) int {
	n := 0
	for _, here := range present {
		if here {
			n++
		}
	}
	return n
}

// LeftOut says why a node has no share in the newest round.
func (c *Control) LeftOut(node int) Why {
	if c.parts == nil || c.plan.Sizes[node] > 0 {
		return TakesPart
	}
	return c.parts.nodes[node].why
}
