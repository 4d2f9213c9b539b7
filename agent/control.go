package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
)

// Control runs a policy on a cluster, round by round: the method's loop, the same for
// the simulator and for live workers.
type Control struct {
	Cluster *cluster.Cluster
	Runner  cluster.Runner
	Policy  Policy
	Clock   func() time.Time // times decisions; nil: they are not timed

	sizes  []int
	report *cluster.Report
}

// Round is what one round of control did.
type Round struct {
	Sizes    []int           // handed out; valid until the next round
	Report   *cluster.Report // what came back; valid until the next round
	Decision time.Duration   // time the policy took; 0 without a clock
}

// Round decides, hands out and collects once. If the present nodes cannot hold the
// global batch the error wraps cluster.ErrCapacity.
func (c *Control) Round(ctx context.Context) (Round, error) {
	if c.sizes == nil {
		c.sizes = make([]int, len(c.Cluster.Nodes))
	}
	var begun time.Time
	if c.Clock != nil {
		begun = c.Clock()
	}
	if err := c.Policy.Decide(c.report, c.Runner.Present(), c.sizes); err != nil {
		return Round{}, fmt.Errorf("agent: decide: %w", err)
	}
	r := Round{Sizes: c.sizes}
	if c.Clock != nil {
		r.Decision = c.Clock().Sub(begun)
	}
	report, err := c.Runner.Round(ctx, c.sizes)
	if err != nil {
		return Round{}, fmt.Errorf("agent: %w", err)
	}
	c.report, r.Report = report, report
	return r, nil
}
