// Package cluster describes a mixed training cluster: nodes with their compute
// resources, the controller's belief about them, the allocation that follows from
// both, and the rule by which a round collects gradients.
//
// In the order of use (the Example is the whole program):
//
//	_, c, err := clusterfile.Load("cluster.yaml", profile.Embedded()) // nodes from a file and the catalogue
//	perf := c.Nominal()                                           // performance parameters from the profiles
//	sizes := make([]int, len(c.Nodes))
//	seconds, err := cluster.Allocate(c, nil, perf, sizes)         // shares that finish together
//	report, err := runner.Round(ctx, cluster.Plan{Sizes: sizes, Collect: c.Collect})
//
// The [Runner] is the simulator of package sim, or one of your own. A [Recorder] applies the
// round rule for it and makes the report; see the example of [NewRecorder]. A policy turns
// the report into new performance parameters.
//
// The method follows China Telecom's patent on micro-batch data determination for
// distributed training by multi-objective reinforcement learning. Compute resources ([Node])
// and performance parameters ([Performance]) give the shares ([Allocate]), which nodes compute in
// micro-steps that fit into their memory (step 1; the patent's micro-batch is such a share).
// A round waits for the quorum (step 3) and then at most the grace duration for the target
// nodes' gradients, whose age must stay below the staleness bound (step 4, [Collect]). The
// [Report] has what the policy sees (step 5).
//
// Everything here is a function of its input: no clock, no randomness, no I/O. Package
// clusterfile reads cluster files.
package cluster
