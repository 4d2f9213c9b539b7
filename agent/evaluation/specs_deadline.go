package evaluation

import (
	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
)

// Policies that end rounds by time. As published they stop at whole micro-steps; those
// called -cut size the last one as Evenkeel does, to show what that alone is worth.

var (
	anytimeFactors = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1}
	expectedGains  = []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7}
	deadlineShares = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1, 1.15, 1.2}
	reserves       = []float64{0, 0.01, 0.02, 0.04, 0.08}
	deviationKs    = []float64{1, 2, 3, 5, 8}
	deadlineGains  = []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7}
)

// steps are whole ones, or cut with a tuned reserve.
func stepsAt(cut bool, at []int) baseline.Steps {
	if !cut {
		return baseline.Steps{}
	}
	return baseline.Steps{Cut: true, Reserve: reserves[at[0]]}
}

// timed is the spec of a policy that ends rounds by time; where the last micro-step is cut,
// the reserve is its last hyperparameter.
func timed(name, about string, cut bool, params []Hyperparameter, create func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy) Spec {
	n := len(params)
	if cut {
		name, about = name+"-cut", about+", with the last micro-step cut"
		params = append(params, numbers("reserve", 0.02, reserves...))
	}
	s := tuned(name, about, params, func(c *cluster.Cluster, at []int) agent.Policy {
		return create(c, at, stepsAt(cut, at[n:]))
	})
	s.Deadline = true
	return s
}

func tunedAnytime(cut bool) Spec {
	return timed("anytime", "a fixed time for all (Anytime MiniBatch)", cut, []Hyperparameter{numbers("factor", 1, anytimeFactors...)},
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewAnytime(c, anytimeFactors[at[0]], steps)
		})
}

func tunedExpectedTime(cut bool) Spec {
	return timed("expected-time", "until the global batch is expected (hivemind)", cut, []Hyperparameter{numbers("gain", 0.1, expectedGains...)},
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewExpectedTime(c, expectedGains[at[0]], steps)
		})
}

func tunedAuto(cut bool) Spec {
	return timed("auto", "water-filling with Evenkeel's automatic deadline", cut, []Hyperparameter{numbers("gain", 0.35, deadlineGains...)},
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewFilledDeadline(c, 0, steps, baseline.WaterFill{Gain: deadlineGains[at[0]]})
		})
}

func tunedFilledDeadline(cut bool) Spec {
	params := []Hyperparameter{numbers("deadline", 1, deadlineShares...), numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("waterfill-deadline", "water-filling with room for noise and a deadline at a share of its finish", cut, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewFilledDeadline(c, deadlineShares[at[0]], steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}

func tunedDropSteps() Spec {
	params := []Hyperparameter{{Name: "window", Values: []string{"10 rounds", "30 rounds", "100 rounds"}, Start: 1}, numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("dropcompute-steps", "drops the micro-steps left at a threshold of the times measured (DropCompute as published)", false, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewDropSteps(c, ruleWindows[at[0]], steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}

func tunedDeviations() Spec {
	params := []Hyperparameter{numbers("k", 3, deviationKs...), numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("median-mad", "drops what is not done at the median of the times plus k deviations", false, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewDeviations(c, deviationKs[at[0]], 30, steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}
