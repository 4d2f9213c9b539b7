// Package cluster says what a mixed training cluster is: nodes with their compute
// resources, the controller's belief about them, the allocation that follows from
// both, and the rule by which a round collects gradients.
//
// In the order in which one uses it:
//
//	c, err := cluster.Load("cluster.yaml", profile.Embedded()) // nodes from a file and the catalogue
//	perf := c.Nominal()                                        // performance parameters from the profiles
//	sizes := make([]int, len(c.Nodes))
//	finish, err := cluster.Allocate(c, nil, perf, sizes)       // micro-batches that finish together
//	report, err := runner.Round(ctx, plan)                    // a Runner: the simulator, or live workers
//	...                                                        // a policy turns the report into new parameters
//
// The method follows China Telecom's patent on micro-batch data determination for
// distributed training by multi-objective reinforcement learning. Its steps are here
// the words of the design: compute resources ([Node]) and performance parameters
// ([Performance]) give the [Allocate]d micro-batches (step 1); the [Round] waits for
// the quorum (step 3) and then at most the grace duration for the target nodes'
// gradients, whose age must stay below the staleness bound (step 4); the [Report]
// carries what the policy is shown (step 5).
//
// Everything here is a function of its input: no clock, no randomness, no I/O but
// the reading of a cluster file.
package cluster
