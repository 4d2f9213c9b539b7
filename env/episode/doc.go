// Package episode plays the tuning problem of package env in simulated clusters: a typed step, a reward for every
// objective and node, a time limit. See the Example for the loop.
//
// From the parameters that the actions lead to, the micro-batches are recomputed (step 6 of China Telecom's patent) and the
// next round runs. Rewards may use the simulator's truth; observations never do.
//
// A time limit ends an episode without being terminal: the value of the last observation is to be bootstrapped. Terminal
// is only a cluster that can no longer hold the global batch.
package episode
