// Package env is the tuning problem as a reinforcement-learning environment: its observations, its actions, and the
// belief about every node that connects them. Package env/episode plays it in simulated clusters.
//
// [Tracker] keeps every node's performance parameters and writes the observation. It needs no simulator, so the code
// that is trained also runs online. Each round it takes in the report and writes a row for
// every node; an action per row, an index into [Actions], gives the parameters for the next allocation. See the Example.
//
// The observation has what the method of China Telecom's patent names (step 5): the gradients received, the total wait,
// and every node's performance parameters with their residuals. An action is the update of a node's parameters.
//
// A tracker's state of a node has three parts, each in a file: the belief (belief.go), the filter that moves it
// (filter.go), and what the last rounds showed (seen.go). rounds.go computes the values of the round rules.
package env
