package evaluation

import (
	"cmp"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
)

// Policies that end rounds by time. As published they stop at whole micro-steps; those
// called -cut size the last one as Evenkeel does, to show what that alone is worth, and those
// called -on go on after the deadline while a node is late.

var (
	anytimeFactors = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1}
	expectedGains  = []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7}
	deadlineShares = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1, 1.15, 1.2}
	reserves       = []float64{0, 0.01, 0.02, 0.04, 0.08}
	deadlineGains  = []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7}
)

// ending is how a node ends its round.
type ending int

const (
	whole ending = iota // at the last whole micro-step
	cut                 // the last one is cut
	on                  // the same, and nodes go on while another is late
)

// stepsAt are whole ones, or cut with a tuned reserve; those after the deadline are as long
// as the cluster's.
func stepsAt(c *cluster.Cluster, e ending, at []int) baseline.Steps {
	switch e {
	case whole:
		return baseline.Steps{}
	case cut:
		return baseline.Steps{Cut: true, Reserve: reserves[at[0]]}
	}
	return baseline.Steps{Cut: true, Reserve: reserves[at[0]], Overtime: cmp.Or(c.Collect.Overtime, cluster.DefaultOvertime)}
}

// timed is the spec of a policy that ends rounds by time; where the last micro-step is cut,
// the reserve is its last hyperparameter.
func timed(name, about string, e ending, params []Hyperparameter, create func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy) Spec {
	n := len(params)
	if e != whole {
		params = append(params, numbers("reserve", 0.02, reserves...))
		about += ", with the last micro-step cut"
	}
	switch e {
	case cut:
		name += "-cut"
	case on:
		name, about = name+"-on", about+" and small ones while another node is late"
	}
	s := tuned(name, about, params, func(c *cluster.Cluster, at []int) agent.Policy {
		return create(c, at, stepsAt(c, e, at[n:]))
	})
	s.Deadline, s.Cut, s.Overtime = true, e != whole, e == on
	return s
}

func tunedAnytime(e ending) Spec {
	return timed("anytime", "a fixed time for all (Anytime MiniBatch)", e, []Hyperparameter{numbers("factor", 1, anytimeFactors...)},
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewAnytime(c, anytimeFactors[at[0]], steps)
		})
}

func tunedExpectedTime(e ending) Spec {
	return timed("expected-time", "until the global batch is expected (hivemind)", e, []Hyperparameter{numbers("gain", 0.1, expectedGains...)},
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewExpectedTime(c, expectedGains[at[0]], steps)
		})
}

func tunedAuto(e ending) Spec {
	params := []Hyperparameter{numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("auto", "water-filling with a margin for noise and Evenkeel's automatic deadline", e, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewFilledDeadline(c, 0, steps, baseline.WaterFill{Gain: deadlineGains[at[0]], Margin: ruleMargins[at[1]]})
		})
}

func tunedFilledDeadline(e ending) Spec {
	params := []Hyperparameter{numbers("deadline", 1, deadlineShares...), numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("waterfill-deadline", "water-filling with a margin for noise and a deadline at a share of its finish", e, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewFilledDeadline(c, deadlineShares[at[0]], steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}
