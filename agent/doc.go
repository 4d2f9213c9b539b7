// Package agent chooses the nodes' shares: it has the loop of the method, the policy that
// Evenkeel trains, and its explanations.
//
// In the order of use:
//
//	trained, err := agent.Embedded()                      // or agent.Load("policy.safetensors")
//	p := trained.NewAgent(c, weights)                     // the Double-DQN policy for cluster c
//	ctl := &agent.Control{Cluster: c, Runner: runner, Policy: p}
//	round, err := ctl.Round(ctx)                          // decide, hand out, collect: one round
//
// See the Example. A [Policy] turns the report of a round into the sizes of the next. The runner is a
// simulator or live workers; this package needs neither.
//
// A bad network can cost speed, but not correctness: the allocation computes the sizes, so
// they keep every known limit and sum to the global batch. If the network's input is outside
// the range of training, or its advantage is small, the agent takes the model's own update.
// Sizes change only when that pays.
//
// Sub-packages: baseline has the rules and bounds that the agent is measured against, clusters the
// embedded cluster files, export the formats that trainers read. Package lab/training trains the
// agent on the simulator, lab/evaluation compares policies over scenarios and seeds.
package agent
