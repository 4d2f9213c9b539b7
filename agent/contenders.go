package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// Contender is a policy that can be compared: its name and, where it has knobs, the
// grid over which they are tuned for every scenario.
type Contender struct {
	Name  string
	About string
	Bound bool   // an oracle: no competitor
	Rule  bool   // decides when rounds end
	Batch bool   // decides the global batch
	Axes  []Axis // of its grid; nil: nothing to tune
	// Hindsight is of how many of its first axes it takes the best values on every judged
	// seed; the others are tuned, as and with those of the contender Like, if there is one.
	Hindsight int
	Like      string
	create    func(c *cluster.Cluster, s *sim.Simulator, t *Trained, w [env.Objectives]float64, knob int) Policy
}

// judged are the points that it is judged with: the tuned one, in hindsight several.
func (p *Contender) judged(tuned int) []int { return block(p.Axes, tuned, 0, p.Hindsight) }

// New returns the policy with the knob-th grid point (0 where there are none) for one
// run of s.
func (p *Contender) New(c *cluster.Cluster, s *sim.Simulator, t *Trained, w [env.Objectives]float64, knob int) Policy {
	return p.create(c, s, t, w, knob)
}

// Contenders returns every policy, in the order of tables: the agent, the baselines
// from simple to strong, the agent's own fallback, the bounds.
func Contenders() []Contender {
	return []Contender{
		{Name: "ddqn", About: "the trained Double-DQN agent", create: func(c *cluster.Cluster, _ *sim.Simulator, t *Trained, w [env.Objectives]float64, _ int) Policy {
			return t.NewAgent(c, w)
		}},
		{Name: "uniform", About: "the same size everywhere", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return NewUniform(c)
		}},
		{Name: "nameplate", About: "in proportion to data-sheet speed", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return NewNameplate(c)
		}},
		tunedProportional(), tunedLBBSP(),
		{Name: "proportional-default", About: "OmniLearn with its authors' knobs: an epoch (100 rounds), dead band 0.2", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return NewProportional(c, 100, 0.2)
		}},
		{Name: "lbbsp-fixed", About: "LB-BSP with one gain for all scenarios, 0.2", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return NewLBBSP(c, 0.2)
		}},
		tunedWaterFill("waterfill", "equal predicted finish times, moving average or least squares (Cannikin)", plainGrid()),
		tunedWaterFill("waterfill-margin", "the same with room for every node's noise", marginGrid()),
		tunedWaterFill("cusum", "the same with change detection", cusumGrid()),
		tunedGoodput(), tunedKofN(), tunedGoodputKofN(), tunedDBW(), tunedDropCompute(),
		{Name: "model", About: "the agent's fallback rule alone, without the network", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
			return NewModel(c)
		}},
		bound("static", "true rates of the first round", Oracle{Once: true}),
		bound("lag1", "true rates of the round before", Oracle{Lag: 1}),
		bound("oracle", "true rates now, not the noise", Oracle{}),
		boundMargin(), hindsightKofN(),
	}
}

// Find returns the contenders of the given names.
func Find(names []string) ([]Contender, error) {
	all := Contenders()
	var known []string
	for _, c := range all {
		known = append(known, c.Name)
	}
	var found []Contender
next:
	for _, n := range names {
		for _, c := range all {
			if c.Name == n {
				found = append(found, c)
				continue next
			}
		}
		return nil, fmt.Errorf("agent: unknown policy %q; known: %s", n, strings.Join(known, ", "))
	}
	return found, nil
}

// numbers is an axis of numbers; the search starts from the value start.
func numbers(name string, start float64, values ...float64) Axis {
	a := Axis{Name: name, Start: slices.Index(values, start)}
	for _, v := range values {
		a.Values = append(a.Values, fmt.Sprint(v))
	}
	return a
}

// tuned is a contender whose policy needs the cluster and its knobs alone.
func tuned(name, about string, axes []Axis, create func(c *cluster.Cluster, at []int) Policy) Contender {
	return Contender{Name: name, About: about, Axes: axes, create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, _ [env.Objectives]float64, k int) Policy {
		return create(c, split(axes, k))
	}}
}

func tunedProportional() Contender {
	periods, dead := []int{1, 10, 50}, []float64{0, 0.05, 0.2}
	axes := []Axis{{Name: "every", Values: []string{"1 rounds", "10 rounds", "50 rounds"}}, numbers("dead band", 0, dead...)}
	return tuned("proportional", "proportional control (OmniLearn)", axes, func(c *cluster.Cluster, at []int) Policy {
		return NewProportional(c, periods[at[0]], dead[at[1]])
	})
}

func tunedLBBSP() Contender {
	gains := []float64{0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1}
	return tuned("lbbsp", "moving average of the speed (LB-BSP)", []Axis{numbers("gain", 0.2, gains...)}, func(c *cluster.Cluster, at []int) Policy {
		return NewLBBSP(c, gains[at[0]])
	})
}

var (
	waterGains   = []float64{0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1}
	waterMargins = []float64{0.25, 0.5, 0.75, 1, 1.25, 1.5, 2}
)

func plainGrid() []WaterFill {
	var grid []WaterFill
	for _, g := range waterGains {
		grid = append(grid, WaterFill{Gain: g})
	}
	for _, f := range []float64{0.9, 0.95, 0.98, 0.99} {
		grid = append(grid, WaterFill{Gain: 1, Forget: f})
	}
	return grid
}

func marginGrid() []WaterFill {
	var grid []WaterFill
	for _, g := range waterGains {
		for _, m := range waterMargins {
			grid = append(grid, WaterFill{Gain: g, Margin: m})
		}
	}
	return grid
}

func cusumGrid() []WaterFill {
	var grid []WaterFill
	for _, g := range waterGains[:5] {
		for _, m := range append([]float64{0}, waterMargins...) {
			for _, h := range []float64{1.5, 2.5, 4, 6, 10} {
				grid = append(grid, WaterFill{Gain: g, Margin: m, CUSUM: h})
			}
		}
	}
	return grid
}

// tunedWaterFill tries every setting of a list: one axis.
func tunedWaterFill(name, about string, grid []WaterFill) Contender {
	var all Axis
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
	return tuned(name, about, []Axis{all}, func(c *cluster.Cluster, at []int) Policy {
		return NewWaterFill(c, grid[at[0]])
	})
}

// Suited returns the contenders that decide no more than all the cases leave free.
func Suited(cases []Case) []Contender {
	return slices.DeleteFunc(Contenders(), func(p Contender) bool {
		return slices.ContainsFunc(cases, func(c Case) bool {
			free := &c.Cluster.Choices
			return p.Rule && len(free.Rules()) == 0 || p.Batch && free.MostBatch == 0
		})
	})
}

func bound(name, about string, o Oracle) Contender {
	return Contender{Name: name, About: about, Bound: true, create: func(c *cluster.Cluster, s *sim.Simulator, _ *Trained, _ [env.Objectives]float64, _ int) Policy {
		return NewOracle(c, s, o)
	}}
}

func boundMargin() Contender {
	margins := append(append([]float64{0}, waterMargins...), 2.5)
	c := Contender{Name: "oracle-margin", About: "true rates now, with the best room for true noise", Bound: true, Axes: []Axis{numbers("margin", 0, margins...)}}
	c.create = func(c *cluster.Cluster, s *sim.Simulator, _ *Trained, _ [env.Objectives]float64, k int) Policy {
		return NewOracle(c, s, Oracle{Margin: margins[k]})
	}
	return c
}

// Contender is a policy file's network as a contender of its own, so that several can
// be compared.
func (t *Trained) Contender(name string) Contender {
	return Contender{Name: name, About: "a trained Double-DQN agent", create: func(c *cluster.Cluster, _ *sim.Simulator, _ *Trained, w [env.Objectives]float64, _ int) Policy {
		return t.NewAgent(c, w)
	}}
}
