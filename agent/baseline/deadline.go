package baseline

import (
	"math"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// Steps says how nodes end a round with a deadline: after a whole micro-step, as published, or with the last micro-step cut to
// their pace, which is Evenkeel's own.
type Steps struct {
	Cut     bool
	Reserve float64 // share of the time left that a cut micro-step keeps free
	// Overtime is the longest micro-step after the deadline while other nodes are still at work, as a share of the deadline;
	// 0: none. It is Evenkeel's own too.
	Overtime float64
}

// timed writes a deadline into the plan.
func (s Steps) timed(plan *cluster.Plan, seconds float64) {
	plan.Collect.AutoDeadline, plan.Collect.DeadlineShare = false, 0
	plan.Collect.Deadline = max(time.Duration(min(seconds*1e9, math.MaxInt64/2)), 1)
	plan.Collect.Whole, plan.Collect.Reserve, plan.Collect.Overtime = !s.Cut, 0, s.Overtime
	if s.Cut {
		plan.Collect.Reserve = s.Reserve
	}
}

// filled is water-filling with a deadline at a share of its predicted finish, or an
// automatic one.
type filled struct {
	*waterFill
	share float64 // 0: automatic
	steps Steps
}

// NewFilledDeadline returns water-filling whose rounds end at a share of the predicted
// finish time; 0: at Evenkeel's automatic deadline.
func NewFilledDeadline(c *cluster.Cluster, share float64, steps Steps, fill WaterFill) agent.Policy {
	return &filled{newWaterFill(c, fill), share, steps}
}

func (p *filled) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if err := p.waterFill.Decide(report, present, plan); err != nil {
		return err
	}
	p.steps.timed(plan, p.share*plan.Finish)
	if p.share == 0 {
		plan.Collect.Deadline, plan.Collect.AutoDeadline = 0, true
	}
	return nil
}
