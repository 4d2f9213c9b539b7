// Package baseline has the policies that the agent is measured against: published rules, each with its source and
// deviations, and oracles, which know what no real policy can know and serve as bounds.
//
// Every constructor takes the cluster and the rule's hyperparameters and returns an
// agent.Policy:
//
//	p := baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.2, Margin: 1})
//	ctl := &agent.Control{Cluster: c, Runner: runner, Policy: p}
//
// See the Example. Package evaluation finds them by name and tunes their hyperparameters.
package baseline
