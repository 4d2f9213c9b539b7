// Package planner cuts the training of a model over the devices of a mixed cluster: into pipeline stages of consecutive
// layers, each on devices of its own, with a strategy for every layer (tensor and data parallelism, sharding, activation
// checkpointing), and uneven shares of a micro-batch where a stage mixes devices.
//
//	profile, err := planner.LoadProfile("layers.csv")
//	topology, err := cluster.LoadTopology("cluster.yaml")
//	job, err := planner.NewJob(profile, topology, planner.Options{GlobalBatch: 64})
//	result, err := job.Search(ctx, nil) // result.Plan
//
// The method is that of the patent of the Hangzhou Binjiang Institute of Blockchain and Data Security on model-parallel
// training of heterogeneous systems: under each of many preset conditions, cut, map and choose strategies by dynamic
// programming, and take the condition with the least cost. It departs from it in that the search is exact: it keeps
// Pareto points where the patent keeps one, and all pipeline degrees come out of one pass.
package planner
