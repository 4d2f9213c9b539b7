package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/badinput"
)

// Spec describes a policy that can be compared: its name and, where it has
// hyperparameters, the grid over which they are tuned for every scenario.
type Spec struct {
	Name            string
	About           string
	Bound           bool             // an oracle: no competitor
	Rule            bool             // decides when rounds end
	Batch           bool             // decides the global batch
	Deadline        bool             // may set the deadline if a cluster leaves it open; the others wait for all
	Timed           bool             // sets a deadline for every round: suits only clusters that leave it open
	Cut             bool             // makes nodes cut their last micro-step, even if the cluster's are whole
	Overtime        bool             // is about micro-steps after a deadline: suits clusters that allow them
	Hyperparameters []Hyperparameter // of its grid; nil: nothing to tune
	// Hindsight is the number of leading hyperparameters whose best values are chosen on each
	// judged seed. The others are tuned, or taken from the policy named by Like.
	Hindsight int
	Like      string
	create    create
}

// create returns the policy at a point of its grid, for one run.
type create func(c *cluster.Cluster, s *sim.Simulator, t *agent.Trained, w [env.Objectives]float64, point int) agent.Policy

// judged returns the points that are run on judged seeds: the tuned one, with Hindsight several.
func (p *Spec) judged(tuned int) []int { return block(p.Hyperparameters, tuned, 0, p.Hindsight) }

// New returns the policy at a point of its grid (0 where there is none) for one run of s.
// Only the trained agent needs t and the weights w.
func (p *Spec) New(c *cluster.Cluster, s *sim.Simulator, t *agent.Trained, w [env.Objectives]float64, point int) agent.Policy {
	return p.create(c, s, t, w, point)
}

// Specs returns every policy in the order of tables: the agent, the baselines from simple
// to strong, the agent's own fallback, the bounds.
func Specs() []Spec {
	return []Spec{
		{Name: "ddqn", About: "the trained Double-DQN agent", Deadline: true, create: func(c *cluster.Cluster, _ *sim.Simulator, t *agent.Trained, w [env.Objectives]float64, _ int) agent.Policy {
			return t.NewAgent(c, w)
		}},
		untuned("uniform", "the same size everywhere", baseline.NewUniform),
		tunedProportional(), tunedLBBSP(),
		tunedWaterFill("waterfill", "equal predicted finish times, moving average or least squares (Cannikin)", plainGrid()),
		tunedWaterFill("waterfill-margin", "the same with a margin for every node's noise", fillGrid(waterGains, waterMargins, []float64{0})),
		tunedWaterFill("cusum", "the same with change detection", fillGrid(waterGains[:5], ruleMargins, ruleThresholds[1:])),
		tunedForetold("periods", "the same, ready when a node's next slow spell is due by its period", numbers("window", 0.1, 0, 0.03, 0.1, 0.2, 0.4), func(f *baseline.Foretold, v float64) { f.Window = v }),
		tunedForetold("followers", "the same, ready when one is due after that of the node before it in its rack or host", numbers("window", 0.2, 0, 0.1, 0.2, 0.4, 0.8), func(f *baseline.Foretold, v float64) { f.Window, f.Before = v, true }),
		tunedForetold("signs", "the same, ready after two rounds that are a little slow", numbers("deviations", 1.5, 0, 1, 1.5, 2, 3), func(f *baseline.Foretold, v float64) { f.Sign = v }),
		tunedGoodput(), tunedKofN(), tunedGoodputKofN(), tunedDBW(), tunedDropCompute(),
		tunedAnytime(whole), tunedAnytime(cut), tunedAnytime(on),
		tunedExpectedTime(whole), tunedExpectedTime(cut), tunedExpectedTime(on),
		tunedAuto(whole), tunedAuto(cut), tunedAuto(on), tunedFilledDeadline(on),
		model("model", "the agent's fallback rule, without the network", agent.NewModel),
		model("reactive", "the same without foresight", agent.NewReactive),
		bound("lag1", "true rates of the round before", baseline.Oracle{Lag: 1}),
		bound("oracle", "true rates now, not the noise", baseline.Oracle{}),
		boundMargin("oracle-margin", "true rates now, with the best margin for true noise", 0, slices.Concat(ruleMargins, []float64{2.5})...),
		boundMargin("lag1-margin", "true rates of the round before, with the best margin for true noise", 1, ruleMargins...),
		hindsightKofN(),
		bound("hindsight", "true rates and the noise of the coming round", baseline.Oracle{Noise: true}),
	}
}

// Find returns the specs of the named policies. An unknown name is bad input.
func Find(names []string) ([]Spec, error) {
	all := Specs()
	var known []string
	for _, c := range all {
		known = append(known, c.Name)
	}
	var found []Spec
next:
	for _, n := range names {
		for _, c := range all {
			if c.Name == n {
				found = append(found, c)
				continue next
			}
		}
		return nil, badinput.Errorf("evaluation: unknown policy %q; known: %s", n, strings.Join(known, ", "))
	}
	return found, nil
}

// numbers returns a hyperparameter with numbers as values; the search starts from the value start.
func numbers(name string, start float64, values ...float64) Hyperparameter {
	a := Hyperparameter{Name: name, Start: slices.Index(values, start)}
	for _, v := range values {
		a.Values = append(a.Values, fmt.Sprint(v))
	}
	return a
}

// untuned returns the spec of a policy without hyperparameters that needs only the cluster.
func untuned(name, about string, create func(c *cluster.Cluster) agent.Policy) Spec {
	return Spec{Name: name, About: about, create: func(c *cluster.Cluster, _ *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, _ int) agent.Policy {
		return create(c)
	}}
}

// tuned returns the spec of a policy that needs only the cluster and its hyperparameters.
func tuned(name, about string, params []Hyperparameter, create func(c *cluster.Cluster, at []int) agent.Policy) Spec {
	return Spec{Name: name, About: about, Hyperparameters: params, create: func(c *cluster.Cluster, _ *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, k int) agent.Policy {
		return create(c, split(params, k))
	}}
}

func tunedProportional() Spec {
	periods, dead := []int{1, 10, 50}, []float64{0, 0.05, 0.2}
	params := []Hyperparameter{{Name: "every", Values: []string{"1 rounds", "10 rounds", "50 rounds"}}, numbers("dead band", 0, dead...)}
	return tuned("proportional", "proportional control (OmniLearn)", params, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewProportional(c, periods[at[0]], dead[at[1]])
	})
}

func tunedLBBSP() Spec {
	gains := []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1}
	return tuned("lbbsp", "moving average of the speed (LB-BSP)", []Hyperparameter{numbers("gain", 0.2, gains...)}, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewLBBSP(c, gains[at[0]])
	})
}

var (
	waterGains   = []float64{0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1}
	waterMargins = []float64{0.25, 0.5, 0.75, 1, 1.25, 1.5, 2}
)

// plainGrid returns all gains, and least squares with some forgetting factors.
func plainGrid() []baseline.WaterFill {
	grid := fillGrid(waterGains, []float64{0}, []float64{0})
	for _, f := range []float64{0.9, 0.95, 0.98, 0.99} {
		grid = append(grid, baseline.WaterFill{Gain: 1, Forget: f})
	}
	return grid
}

// fillGrid returns all combinations of gains, margins and thresholds.
func fillGrid(gains, margins, thresholds []float64) []baseline.WaterFill {
	var grid []baseline.WaterFill
	for _, g := range gains {
		for _, m := range margins {
			for _, h := range thresholds {
				grid = append(grid, baseline.WaterFill{Gain: g, Margin: m, CUSUM: h})
			}
		}
	}
	return grid
}

// tunedWaterFill returns the spec of water-filling with one hyperparameter: an entry of a list of settings.
func tunedWaterFill(name, about string, grid []baseline.WaterFill) Spec {
	var all Hyperparameter
	for _, w := range grid {
		text := fmt.Sprintf("gain %g", w.Gain)
		if w.Forget > 0 {
			text = fmt.Sprintf("least squares, forgetting %g", w.Forget)
		}
		if w.Margin > 0 {
			text += fmt.Sprintf(", margin %g", w.Margin)
		}
		if w.CUSUM > 0 {
			text += fmt.Sprintf(", threshold %g", w.CUSUM)
		}
		all.Values = append(all.Values, text)
	}
	return tuned(name, about, []Hyperparameter{all}, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewWaterFill(c, grid[at[0]])
	})
}

// tunedForetold returns the spec of water-filling with change detection and a rule of thumb that foretells spells.
func tunedForetold(name, about string, by Hyperparameter, set func(*baseline.Foretold, float64)) Spec {
	params := append(fillParams(), by)
	params[2].Start = slices.Index(ruleThresholds, 2.5)
	return tuned(name, about, params, func(c *cluster.Cluster, at []int) agent.Policy {
		config := baseline.Foretold{WaterFill: fillAt(at)}
		v, _ := strconv.ParseFloat(by.Values[at[3]], 64)
		set(&config, v)
		return baseline.NewForetold(c, config)
	})
}

// Suited returns the specs of the policies that choose only what all cases leave open, and need only what all their trainers
// can do.
func Suited(cases []Case) []Spec {
	return slices.DeleteFunc(Specs(), func(p Spec) bool {
		return slices.ContainsFunc(cases, func(c Case) bool {
			free, collect := &c.Cluster.Choices, &c.Cluster.Collect
			return p.Rule && len(free.Rules()) == 0 || p.Batch && free.MostBatch == 0 || p.Timed && !collect.AutoDeadline ||
				p.Cut && collect.Whole || p.Overtime && collect.Overtime == 0
		})
	})
}

// ends says when the rounds of the policy end on a cluster: "all in", "quorum" or "deadline". A
// policy without Deadline waits for all where the cluster leaves the deadline open.
func (p *Spec) ends(c *cluster.Cluster) string {
	collect, q := &c.Collect, c.Collect.Quorum
	switch {
	case p.Timed, collect.Timed() && (p.Deadline || !collect.AutoDeadline):
		return "deadline"
	case p.Rule, p.Deadline && len(c.Choices.Rules()) > 0, q.Count > 0 && q.Count < len(c.Nodes), q.Share > 0 && q.Share < 1:
		return "quorum"
	}
	return "all in"
}

func bound(name, about string, o baseline.Oracle) Spec {
	return Spec{Name: name, About: about, Bound: true, create: func(c *cluster.Cluster, s *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, _ int) agent.Policy {
		return baseline.NewOracle(c, s, o)
	}}
}

// model returns the spec of the agent's fallback rule.
func model(name, about string, create func(*cluster.Cluster) *agent.Agent) Spec {
	s := untuned(name, about, func(c *cluster.Cluster) agent.Policy { return create(c) })
	s.Deadline = true
	return s
}

// boundMargin is the spec of an oracle with the best of the margins.
func boundMargin(name, about string, lag int, margins ...float64) Spec {
	return Spec{
		Name: name, About: about, Bound: true, Hyperparameters: []Hyperparameter{numbers("margin", 0, margins...)},
		create: func(c *cluster.Cluster, s *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, k int) agent.Policy {
			return baseline.NewOracle(c, s, baseline.Oracle{Lag: lag, Margin: margins[k]})
		},
	}
}

// Policies that choose more than sizes; sizes are water-filling's. Their grids are products, searched by coordinate descent
// from the starts given here.

var (
	ruleMargins    = append([]float64{0}, waterMargins...)
	ruleThresholds = []float64{0, 1.5, 2.5, 4, 6, 10}
	ruleWindows    = []int{10, 30, 100}
)

// fillParams returns water-filling's hyperparameters. Threshold 0: no change detection.
func fillParams() []Hyperparameter {
	return []Hyperparameter{numbers("gain", 0.35, waterGains...), numbers("margin", 0.5, ruleMargins...), numbers("threshold", 0, ruleThresholds...)}
}

func fillAt(at []int) baseline.WaterFill {
	return baseline.WaterFill{Gain: waterGains[at[0]], Margin: ruleMargins[at[1]], CUSUM: ruleThresholds[at[2]]}
}

// ruled marks the spec of a policy that decides when rounds end.
func ruled(s Spec) Spec {
	s.Rule = true
	return s
}

// batchPeriods are the rounds between two choices of the global batch.
var batchPeriods = []int{1, 5, 20, 50}

func periodParam() Hyperparameter {
	return Hyperparameter{Name: "every", Values: []string{"round", "5 rounds", "20 rounds", "50 rounds"}, Start: 2}
}

func tunedGoodput() Spec {
	params := append([]Hyperparameter{periodParam()}, fillParams()[:2]...)
	c := tuned("goodput", "chooses the global batch as well (AdaptDL, Pollux)", params, func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewGoodput(c, batchPeriods[at[0]], baseline.WaterFill{Gain: waterGains[at[1]], Margin: ruleMargins[at[2]]})
	})
	c.Batch = true
	return c
}

// The fixed rules of kofn, the agent's among them.
var (
	ruleQuorums = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}
	ruleGraces  = []float64{0, 0.03, 0.05, 0.06, 0.1, 0.2, 0.4, 0.8}
)

func ruleParams() []Hyperparameter {
	return []Hyperparameter{numbers("quorum", 0.8, ruleQuorums...), numbers("grace", 0.05, ruleGraces...)}
}

func ruleAt(at []int) cluster.Rule {
	return cluster.Rule{Quorum: ruleQuorums[at[0]], Grace: ruleGraces[at[1]]}
}

func tunedKofN() Spec {
	return ruled(tuned("kofn", "waits for a fixed share of the nodes, and a fixed grace (backup workers)", append(ruleParams(), fillParams()...), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewKofN(c, ruleAt(at), fillAt(at[2:]))
	}))
}

// tunedGoodputKofN combines both rules; it is not a published system.
func tunedGoodputKofN() Spec {
	params := append(ruleParams(), periodParam())
	c := tuned("goodput-kofn", "goodput and kofn together", append(params, fillParams()[:2]...), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.WithRule(baseline.NewGoodput(c, batchPeriods[at[2]], baseline.WaterFill{Gain: waterGains[at[3]], Margin: ruleMargins[at[4]]}), ruleAt(at))
	})
	c.Rule, c.Batch = true, true
	return c
}

func hindsightKofN() Spec {
	c := tunedKofN()
	c.Name, c.About, c.Bound = "kofn-hindsight", "kofn with the best quorum and grace of every run, chosen afterwards", true
	c.Like, c.Hindsight = "kofn", 2
	return c
}

func tunedDBW() Spec {
	return ruled(tuned("dbw", "waits for as many nodes as gain most per second (DBW)", windowParams(), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewDBW(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	}))
}

func tunedDropCompute() Spec {
	return ruled(tuned("dropcompute", "waits until a threshold of the times measured (DropCompute)", windowParams(), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewDropCompute(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	}))
}

// windowParams returns how far back a rule looks, whether it counts late work, and water-filling's hyperparameters.
func windowParams() []Hyperparameter {
	return append([]Hyperparameter{
		{Name: "window", Values: []string{"10 rounds", "30 rounds", "100 rounds"}, Start: 1},
		{Name: "late work", Values: []string{"lost", "counted"}},
	}, fillParams()...)
}

// Policies whose rounds end at a deadline. As published, nodes stop after a whole micro-step. Those called -cut size the
// last micro-step as Evenkeel does, to show what that alone is worth. Those called -on also continue after the deadline
// while a node is late.

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
	on                  // the last one is cut, and nodes continue while another one is late
)

// stepsAt returns the micro-steps of an ending: whole, or cut with a tuned reserve. After the deadline they are as long as
// the cluster allows.
func stepsAt(c *cluster.Cluster, e ending, at []int) baseline.Steps {
	switch e {
	case whole:
		return baseline.Steps{}
	case cut:
		return baseline.Steps{Cut: true, Reserve: reserves[at[0]]}
	}
	return baseline.Steps{Cut: true, Reserve: reserves[at[0]], Overtime: cmp.Or(c.Collect.Overtime, cluster.DefaultOvertime)}
}

// timed returns the spec of a policy whose rounds end at a deadline. If the last micro-step is cut, the reserve is the last
// hyperparameter.
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
	s.Deadline, s.Timed, s.Cut, s.Overtime = true, true, e != whole, e == on
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
