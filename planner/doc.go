// Package planner cuts the training of a model over the devices of a mixed cluster: into pipeline stages of consecutive
// layers, each on devices of its own, with a strategy for every layer (tensor and data parallelism, sharding, activation
// checkpointing), and uneven shares of a micro-batch where a stage mixes devices.
//
// NewJob joins a layer profile, a cluster's topology and options; Job.Search finds a plan, Job.Predict prices any plan, and
// LoadPlan and WritePlan exchange plans in files. See the Examples.
//
// The method is that of the patent of the Hangzhou Binjiang Institute of Blockchain and Data Security on model-parallel
// training of heterogeneous systems: under each of many preset conditions, cut, map and choose strategies by dynamic
// programming, and take the condition with the least cost. It departs from it in keeping Pareto points where the patent keeps
// one, and in finding all pipeline degrees in one pass. Over its space of plans (docs/decisions/0010-space-of-plans.md) the
// search is exact for small jobs; for others it returns a lower bound.
package planner
