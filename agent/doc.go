// Package agent holds the policies that size micro-batches, trains one of them and
// judges all.
//
// In the order in which one uses it:
//
//	trained, err := agent.Embedded()                      // or agent.Load("policy.safetensors")
//	p := trained.NewAgent(c, weights)                     // the Double-DQN policy for cluster c
//	ctl := &agent.Control{Cluster: c, Runner: sim.New(c, conditions, seed), Policy: p}
//	round, err := ctl.Round(ctx)                          // decide, hand out, collect: one round
//
// A [Policy] turns the report of a round into the sizes of the next. Besides the agent
// there are the baselines that count (see docs/guides/policies.md), each with the source
// it follows and the knobs that [Tune] searches, and the oracles, which know what a
// policy cannot and serve as bounds.
//
// The agent is safe by construction: sizes always come out of the allocation, which
// keeps every limit and meets the global batch; where the network's input is outside
// what it was trained on, or its advantage is small, the model's own update is taken;
// and sizes change only when that pays.
//
// [Trainer] trains offline on the simulator; [Compare] judges policies over scenarios
// and seeds with paired intervals.
package agent
