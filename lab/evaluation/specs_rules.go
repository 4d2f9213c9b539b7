package evaluation

import (
	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
)

// Policies that decide more than sizes, all over water-filling. Their grids are
// products, searched by coordinate descent from the starts given here: what did well
// without a choice of rules, and waiting for most.

var (
	ruleMargins    = append([]float64{0}, waterMargins...)
	ruleThresholds = []float64{0, 1.5, 2.5, 4, 6, 10}
	ruleWindows    = []int{10, 30, 100}
)

// fillParams are water-filling's hyperparameters; threshold 0: no change detection.
func fillParams() []Hyperparameter {
	return []Hyperparameter{numbers("gain", 0.35, waterGains...), numbers("margin", 0.5, ruleMargins...), numbers("threshold", 0, ruleThresholds...)}
}

func fillAt(at []int) baseline.WaterFill {
	return baseline.WaterFill{Gain: waterGains[at[0]], Margin: ruleMargins[at[1]], CUSUM: ruleThresholds[at[2]]}
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
	c := tuned("kofn", "waits for a fixed share of the nodes, and a fixed grace (backup workers)", append(ruleParams(), fillParams()...), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewKofN(c, ruleAt(at), fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

// tunedGoodputKofN is not a published system, but the obvious combination of both.
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
	c := tuned("dbw", "waits for as many nodes as gain most per second (DBW)", windowParams(), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewDBW(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

func tunedDropCompute() Spec {
	c := tuned("dropcompute", "waits until a threshold of the times measured (DropCompute)", windowParams(), func(c *cluster.Cluster, at []int) agent.Policy {
		return baseline.NewDropCompute(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

// windowParams are how far back a rule looks, whether it counts late work, and
// water-filling's hyperparameters.
func windowParams() []Hyperparameter {
	return append([]Hyperparameter{
		{Name: "window", Values: []string{"10 rounds", "30 rounds", "100 rounds"}, Start: 1},
		{Name: "late work", Values: []string{"lost", "counted"}},
	}, fillParams()...)
}
