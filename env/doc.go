// Package env is the tuning problem as a reinforcement-learning environment.
//
//	e, err := env.New(env.Config{Cluster: c, Conditions: conditions, Seed: 1, Rounds: 300})
//	step, err := e.Reset()                  // runs the first round by the profiles alone
//	for step.Kind != env.Last {
//		rows = e.Rows(rows)                 // one observation row per node
//		step, err = e.Step(actions)         // one action per node, an index into Actions
//	}
//
// The observation holds what the method of China Telecom's patent names (step 5): the
// gradients received, the total wait, and every node's performance parameters with
// their residuals. An action is the update of a node's parameters. From them the
// micro-batches are recomputed (step 6) and the next round runs.
//
// [Tracker] is the part that keeps the parameters and writes the observation. It needs
// no simulator, so that the controller that was trained is the code that runs online.
// Rewards may use the simulator's truth; observations never do.
//
// A time limit ends an episode without being terminal: the value of the last
// observation is to be bootstrapped. Terminal is only a cluster that can no longer
// hold the global batch.
package env
