// Package episode plays the tuning problem of package env in simulated clusters: a typed step, a reward for every
// objective and node, a time limit. See the Example for the loop.
//
// The actions set the parameters, from which the shares are recomputed (step 6 of China Telecom's patent), and the
// next round runs. Rewards may use the simulator's truth; observations do not.
//
// A time limit ends an episode without being terminal: bootstrap from the value of the last observation. Only a
// cluster that can no longer compute the global batch is terminal.
package episode
