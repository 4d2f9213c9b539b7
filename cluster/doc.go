// Package cluster says what a mixed training cluster is: nodes with their compute
// resources, the controller's belief about them, the allocation that follows from
// both, and the rule by which a round collects gradients.
//
// In the order in which one uses it (the Example is the whole program):
//
//	_, c, err := cluster.Load("cluster.yaml", profile.Embedded()) // nodes from a file and the catalogue
//	perf := c.Nominal()                                           // performance parameters from the profiles
//	sizes := make([]int, len(c.Nodes))
//	seconds, err := cluster.Allocate(c, nil, perf, sizes)         // shares that finish together
//	report, err := runner.Round(ctx, cluster.Plan{Sizes: sizes, Collect: c.Collect})
//
// The [Runner] is the simulator of package sim, or one of your own, for which a
// [Recorder] applies the round rule and makes the report; the example of [NewRecorder]
// has one. A policy turns the report into new performance parameters.
//
// The method follows China Telecom's patent on micro-batch data determination for
// distributed training by multi-objective reinforcement learning. Its steps are here
// the words of the design: compute resources ([Node]) and performance parameters
// ([Performance]) give the [Allocate]d shares, each worked off in micro-steps of at most
// what memory holds (step 1; the patent's micro-batch is such a share); a round waits for the
// quorum (step 3) and then at most the grace duration for the target nodes' gradients,
// whose age must stay below the staleness bound (step 4, [Collect]); the [Report]
// carries what the policy is shown (step 5).
//
// Everything here is a function of its input: no clock, no randomness, no I/O but
// the reading of a cluster file and of a trace that it names.
package cluster
