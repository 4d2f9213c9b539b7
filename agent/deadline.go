package agent

import (
	"math"
	"time"

	"evenkeel/cluster"
)

const (
	deadlineRate = 0.1 // of the correction by the samples of the newest round
	deadlineMost = 4.0 // times the predicted finish, and as much below it
)

// deadline sets the deadline of each round where the cluster's Collect leaves it open.
type deadline struct {
	factor float64 // of the predicted finish, by which the samples meet the global batch; 0: not known yet
	perf   []cluster.Performance
}

// set writes the coming round's deadline into the plan. An automatic one is the predicted
// finish time of the shares times a factor that holds the samples of a round at the global
// batch in the mean: nodes that are quicker than predicted go beyond their share, slower
// ones stay behind.
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
		if d.factor == 0 {
			d.factor = 1
		}
		share = d.factor
	}
	if plan.Finish == 0 {
		plan.Finish = d.finish(c, plan)
	}
	plan.Collect.Deadline = max(time.Duration(min(share*plan.Finish*1e9, math.MaxInt64/2)), 1)
}

// finish is when the last share is predicted to be done.
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

// observe corrects the factor by a round: by the samples handed in over the shares of the nodes that handed in. The
// factor's logarithm falls in proportion to the excess of this ratio over 1. The corrections of a run add up to the change
// of the logarithm, which is bounded, so the mean of the rounds tends to the global batch however much they scatter. No
// other form has this property: a linear one (times 1 - rate (x - 1)) settles where rounds are too small by half the rate
// times their variance, and one in the logarithm of x where they are too large.
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
