package evaluation

import (
	"cmp"
	"strings"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// Policies that end rounds by time. As published they stop at whole micro-steps; those
// called -cut size the last one as Evenkeel does, to show what that alone is worth, and those
// called -on go on after the deadline while a node is late.

var (
	anytimeFactors = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1}
	expectedGains  = []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7}
	deadlineShares = []float64{0.94, 0.97, 1, 1.03, 1.06, 1.1, 1.15, 1.2}
	reserves       = []float64{0, 0.01, 0.02, 0.04, 0.08}
	deviationKs    = []float64{1, 2, 3, 5, 8}
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

// heldExpectedTime is hivemind's rule at the batch of the others; it is tuned together with
// the rule as it is.
func heldExpectedTime(e ending) Spec {
	s := tunedExpectedTime(e)
	create := s.create
	s.Like = s.Name
	s.Name, s.About = strings.Replace(s.Name, "time", "time-held", 1), s.About+", its times held to the global batch"
	s.create = func(c *cluster.Cluster, sim *sim.Simulator, t *agent.Trained, w [env.Objectives]float64, k int) agent.Policy {
		return baseline.NewHeld(create(c, sim, t, w, k))
	}
	return s
}

// stopping is the agent whose nodes wait after the deadline.
type stopping struct {
	agent.Policy
	end ending
}

func (s stopping) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect.Overtime = 0
	plan.Collect.Whole = plan.Collect.Whole || s.end == whole
	return s.Policy.Decide(report, present, plan)
}

// stoppingAgents are for comparison with rules that end alike.
func stoppingAgents() []Spec {
	create := func(e ending) create {
		return func(c *cluster.Cluster, _ *sim.Simulator, t *agent.Trained, w [env.Objectives]float64, _ int) agent.Policy {
			return stopping{t.NewAgent(c, w), e}
		}
	}
	return []Spec{
		{Name: "ddqn-cut", About: "the agent without overtime: its nodes wait after a deadline", Deadline: true, Overtime: true, create: create(cut)},
		{Name: "ddqn-whole", About: "the same with whole micro-steps only", Deadline: true, Overtime: true, create: create(whole)},
	}
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

func tunedDropSteps() Spec {
	params := []Hyperparameter{{Name: "window", Values: []string{"10 rounds", "30 rounds", "100 rounds"}, Start: 1}, numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("dropcompute-steps", "drops the micro-steps left at a threshold of the times measured (DropCompute as published)", whole, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewDropSteps(c, ruleWindows[at[0]], steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}

func tunedDeviations() Spec {
	params := []Hyperparameter{numbers("k", 3, deviationKs...), numbers("gain", 0.35, deadlineGains...), numbers("margin", 0, ruleMargins...)}
	return timed("median-mad", "drops what is not done at the median of the times plus k deviations", whole, params,
		func(c *cluster.Cluster, at []int, steps baseline.Steps) agent.Policy {
			return baseline.NewDeviations(c, deviationKs[at[0]], 30, steps, baseline.WaterFill{Gain: deadlineGains[at[1]], Margin: ruleMargins[at[2]]})
		})
}

var (
	replanWindows    = []int{1, 3, 10, 30}
	replanThresholds = []float64{0.02, 0.05, 0.1, 0.2, 0.5}
)

// tunedReplan waits for whole micro-steps.
func tunedReplan() Spec {
	params := []Hyperparameter{{Name: "window", Values: []string{"1 round", "3 rounds", "10 rounds", "30 rounds"}, Start: 2}, numbers("shift", 0.1, replanThresholds...)}
	return tuned("replan", "whole micro-steps, redistributed when a node's speed has shifted (Falcon, Malleus)", params, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewReplan(c, replanWindows[at[0]], replanThresholds[at[1]])
	})
}
