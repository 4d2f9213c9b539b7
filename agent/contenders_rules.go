package agent

import "github.com/evenkeel/evenkeel/cluster"

// Contenders that decide more than sizes, all over water-filling. Their grids are
// products, searched by coordinate descent from the starts given here: what did well
// without a choice of rules, and waiting for most.

var (
	ruleMargins    = append([]float64{0}, waterMargins...)
	ruleThresholds = []float64{0, 1.5, 2.5, 4, 6, 10}
	ruleWindows    = []int{10, 30, 100}
)

// fillAxes are water-filling's knobs; threshold 0: no change detection.
func fillAxes() []Axis {
	return []Axis{numbers("gain", 0.35, waterGains...), numbers("margin", 0.5, ruleMargins...), numbers("threshold", 0, ruleThresholds...)}
}

func fillAt(at []int) WaterFill {
	return WaterFill{Gain: waterGains[at[0]], Margin: ruleMargins[at[1]], CUSUM: ruleThresholds[at[2]]}
}

// batchPeriods are the rounds between two choices of the global batch.
var batchPeriods = []int{1, 5, 20, 50}

func periodAxis() Axis {
	return Axis{Name: "every", Values: []string{"round", "5 rounds", "20 rounds", "50 rounds"}, Start: 2}
}

func tunedGoodput() Contender {
	axes := append([]Axis{periodAxis()}, fillAxes()[:2]...)
	c := tuned("goodput", "chooses the global batch as well (AdaptDL, Pollux)", axes, func(c *cluster.Cluster, at []int) Policy {
		return NewGoodput(c, batchPeriods[at[0]], WaterFill{Gain: waterGains[at[1]], Margin: ruleMargins[at[2]]})
	})
	c.Batch = true
	return c
}

// The fixed rules of kofn, the agent's among them.
var (
	ruleQuorums = []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}
	ruleGraces  = []float64{0, 0.03, 0.05, 0.06, 0.1, 0.2, 0.4, 0.8}
)

func ruleAxes() []Axis {
	return []Axis{numbers("quorum", 0.8, ruleQuorums...), numbers("grace", 0.05, ruleGraces...)}
}

func ruleAt(at []int) cluster.Rule {
	return cluster.Rule{Quorum: ruleQuorums[at[0]], Grace: ruleGraces[at[1]]}
}

func tunedKofN() Contender {
	c := tuned("kofn", "waits for a fixed share of the nodes, and a fixed grace (backup workers)", append(ruleAxes(), fillAxes()...), func(c *cluster.Cluster, at []int) Policy {
		return NewKofN(c, ruleAt(at), fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

// tunedGoodputKofN is no published system, but what somebody who knows both would put together.
func tunedGoodputKofN() Contender {
	axes := append(ruleAxes(), periodAxis())
	c := tuned("goodput-kofn", "goodput and kofn together", append(axes, fillAxes()[:2]...), func(c *cluster.Cluster, at []int) Policy {
		return &ruled{NewGoodput(c, batchPeriods[at[2]], WaterFill{Gain: waterGains[at[3]], Margin: ruleMargins[at[4]]}), ruleAt(at)}
	})
	c.Rule, c.Batch = true, true
	return c
}

func hindsightKofN() Contender {
	c := tunedKofN()
	c.Name, c.About, c.Bound = "kofn-hindsight", "kofn with the best quorum and grace of every run, chosen afterwards", true
	c.Like, c.Hindsight = "kofn", 2
	return c
}

func tunedDBW() Contender {
	c := tuned("dbw", "waits for as many nodes as gain most per second (DBW)", windowAxes(), func(c *cluster.Cluster, at []int) Policy {
		return NewDBW(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

func tunedDropCompute() Contender {
	c := tuned("dropcompute", "waits until a threshold of the times measured (DropCompute)", windowAxes(), func(c *cluster.Cluster, at []int) Policy {
		return NewDropCompute(c, ruleWindows[at[0]], at[1] == 1, fillAt(at[2:]))
	})
	c.Rule = true
	return c
}

// windowAxes are how far back a rule looks, what it takes late work for, and water-filling's knobs.
func windowAxes() []Axis {
	return append([]Axis{
		{Name: "window", Values: []string{"10 rounds", "30 rounds", "100 rounds"}, Start: 1},
		{Name: "late work", Values: []string{"lost", "counted"}},
	}, fillAxes()...)
}
