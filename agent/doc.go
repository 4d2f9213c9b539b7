// Package agent sizes micro-batches: it holds the loop of the method, the policy that
// Evenkeel trains, and its explanations.
//
// In the order in which one uses it:
//
//	trained, err := agent.Embedded()                      // or agent.Load("policy.safetensors")
//	p := trained.NewAgent(c, weights)                     // the Double-DQN policy for cluster c
//	ctl := &agent.Control{Cluster: c, Runner: runner, Policy: p}
//	round, err := ctl.Round(ctx)                          // decide, hand out, collect: one round
//
// See the Example. A [Policy] turns the report of a round into the sizes of the next. The runner is a
// simulator or live workers; this package needs neither.
//
// The agent is safe by construction: sizes always come out of the allocation, which
// keeps every limit and meets the global batch; where the network's input is outside
// what it was trained on, or its advantage is small, the model's own update is taken;
// and sizes change only when that pays.
//
// Its sub-packages: baseline holds the rules and bounds that the agent is measured
// against, training trains it offline on the simulator, evaluation compares policies over
// scenarios and seeds, clusters holds the embedded cluster files, export writes sizes in
// the forms that trainers read.
package agent
