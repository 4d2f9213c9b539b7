package baseline

import (
	"math"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// dropSteps is DropCompute as published (Giladi, Gottlieb, Shkolnik, Karnieli, Banner,
// Hoffer, Levy and Soudry, NeurIPS 2023): a node stops at a threshold and drops the micro-steps
// of its share that are left. The threshold is the one with the highest effective speed over
// measured times: samples that are done by it, over the time until it or until all are
// done. Deviations: shares are water-filling's, not equal; the threshold is a share of the
// predicted finish time and is chosen every round from the last ones, not once.
type dropSteps struct {
	*waterFill
	steps Steps
	times times
}

// NewDropSteps returns DropCompute with micro-steps, which looks back over window rounds.
func NewDropSteps(c *cluster.Cluster, window int, steps Steps, fill WaterFill) agent.Policy {
	return &dropSteps{waterFill: newWaterFill(c, fill), steps: steps, times: newTimes(window)}
}

func (p *dropSteps) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.times.add(p.cluster, report, plan.Sizes)
	if err := p.waterFill.Decide(report, present, plan); err != nil {
		return err
	}
	p.times.finish = plan.Finish
	if threshold := p.threshold(); threshold > 0 {
		p.steps.timed(plan, threshold*plan.Finish)
		plan.Collect.Within = true
	} else {
		plan.Collect.AutoDeadline = false
	}
	return nil
}

// threshold is the share of the finish time with the highest effective speed, of several
// the longest; 0: all are waited for.
func (p *dropSteps) threshold() float64 {
	speed := func(threshold float64) float64 {
		done, seconds := 0.0, 0.0
		for _, round := range p.times.rounds {
			for _, t := range round {
				done += min(1, threshold/t) / float64(len(round))
			}
			seconds += min(threshold, round[len(round)-1])
		}
		return done / max(seconds, 1e-300)
	}
	best, most := 0.0, speed(math.Inf(1))
	for k := range 61 {
		threshold := 1.9 - 0.02*float64(k)
		if v := speed(threshold); v > most*(1+1e-9) {
			best, most = threshold, v
		}
	}
	return best
}
