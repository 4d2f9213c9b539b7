package baseline

import (
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// deviations ends rounds at the median of the nodes' times plus k times their median
// absolute deviation, as users of hivemind asked for (issue 676): outliers are cut off,
// whatever the others do. Shares are water-filling's.
type deviations struct {
	*waterFill
	k     float64
	steps Steps
	times times
}

// NewDeviations returns the rule, which looks back over window rounds.
func NewDeviations(c *cluster.Cluster, k float64, window int, steps Steps, fill WaterFill) agent.Policy {
	return &deviations{waterFill: newWaterFill(c, fill), k: k, steps: steps, times: newTimes(window)}
}

func (p *deviations) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.times.add(p.cluster, report, plan.Sizes)
	if err := p.waterFill.Decide(report, present, plan); err != nil {
		return err
	}
	p.times.finish = plan.Finish
	var all []float64
	for _, round := range p.times.rounds {
		all = append(all, round...)
	}
	plan.Collect.AutoDeadline = false
	if len(all) == 0 {
		return nil // nothing is known yet: all are waited for
	}
	middle := median(all)
	for i := range all {
		all[i] = math.Abs(all[i] - middle)
	}
	p.steps.timed(plan, (middle+p.k*median(all))*plan.Finish)
	plan.Collect.Within = true
	return nil
}

// median sorts v and returns its middle.
func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
