package agent

import (
	"cmp"
	"math"
	"time"

	"evenkeel/cluster"
)

const (
	deadlineRate = 0.1 // rate of the factor's correction by the samples of the newest round
	deadlineMost = 4.0 // bound of the factor; 1 over it is the other bound
)

// deadline sets the deadline of each round, if the cluster's Collect leaves it open.
type deadline struct {
	factor float64 // of the predicted finish time with which the samples meet the global batch; 0: not known yet
	perf   []cluster.Performance
}

// set writes the coming round's deadline into the plan. An automatic deadline is the predicted finish time of the shares
// times a factor that keeps the samples of a round at the global batch on average. Nodes that are faster than predicted do
// more than their share, slower ones less.
func (d *deadline) set(c *cluster.Cluster, plan *cluster.Plan) {
	d.end(c, plan)
	if q := &plan.Collect; q.TimeoutShare > 0 && q.Timeout == 0 {
		q.Timeout = time.Duration(min(q.TimeoutShare*float64(q.Deadline), math.MaxInt64/2))
	}
}

// end sets the deadline itself; set derives the timeout from it.
func (d *deadline) end(c *cluster.Cluster, plan *cluster.Plan) {
	share := plan.Collect.DeadlineShare
	if plan.Collect.Deadline > 0 || share == 0 && !plan.Collect.AutoDeadline {
		return
	}
	if plan.Collect.AutoDeadline {
		d.factor = cmp.Or(d.factor, 1)
		share = d.factor
	}
	if plan.Finish == 0 {
		plan.Finish = d.finish(c, plan)
	}
	plan.Collect.Deadline = max(time.Duration(min(share*plan.Finish*1e9, math.MaxInt64/2)), 1)
}

// finish returns the predicted time at which the last share is done.
func (d *deadline) finish(c *cluster.Cluster, plan *cluster.Plan) float64 {
	perf := plan.Perf
	if perf == nil {
		if d.perf == nil {
			d.perf = c.Nominal()
		}
		perf = d.perf
	}
	finish := 0.0
	for i, b := range plan.Sizes {
		if b > 0 {
			finish = max(finish, c.Nodes[i].Finish(perf[i], b))
		}
	}
	return finish
}

// observe corrects the factor after a round. Let x be the samples handed in over the shares of the nodes that handed in. The
// factor's logarithm decreases in proportion to x - 1. The corrections of a run sum to the change of the logarithm. It is
// bounded, so the mean of x tends to 1 however much x scatters, unless the factor stays at a bound. Other forms lack this property: factor times
// (1 - rate (x - 1)) settles where rounds are too small by half the rate times the variance of x, and a correction by the
// logarithm of x where they are too large.
func (d *deadline) observe(report *cluster.Report, plan *cluster.Plan) {
	if d.factor == 0 {
		return
	}
	got, due := 0.0, 0.0
	for i := range report.Nodes {
		if n := &report.Nodes[i]; n.Status == cluster.In {
			got += float64(n.Size)
			due += float64(plan.Sizes[i])
		}
	}
	if got > 0 && due > 0 {
		d.factor = min(max(d.factor*math.Exp(-deadlineRate*(got/due-1)), 1/deadlineMost), deadlineMost)
	}
}
