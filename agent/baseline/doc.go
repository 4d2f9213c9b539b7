// Package baseline holds what the agent is measured against: the rules that count, each
// with the source it follows and its deviations, and the oracles, which know what no policy
// can and serve as bounds.
//
// Every constructor takes the cluster and the rule's hyperparameters and returns an
// agent.Policy:
//
//	p := baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.2, Margin: 1})
//	ctl := &agent.Control{Cluster: c, Runner: runner, Policy: p}
//
// See the Example. Package evaluation knows them by name and tunes their hyperparameters.
package baseline
