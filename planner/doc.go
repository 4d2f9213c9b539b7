// Package planner divides the training of a model over the devices of a mixed cluster: into pipeline stages of consecutive layers, each on devices
// of its own, with a strategy for every layer (tensor and data parallelism, sharding, activation checkpointing), and uneven shares of a
// micro-batch where a stage mixes devices.
//
// One uses it in this order. Times are seconds and sizes bytes throughout; a step is a micro-batch's forward and backward pass.
//
//	p, err := layerprofile.Load("layers.csv")              // measured, or estimated by package estimate: each layer on each device
//	t, err := clusterfile.LoadTopology("cluster.yaml", nil)    // devices by class, machines, links
//	j, err := planner.NewJob(p, t, planner.Options{GlobalBatches: []int{512}})
//	r, err := j.Search(ctx, planner.SearchOptions{})       // the quickest plan found
//	x, err := j.Predict(r.Plan)                            // the price of any plan, written by hand or found
//	err = planner.WritePlan("plan.json", r.Plan)           // for evenkeel plan export, run and check
//
// What happens in between, package by package, each resting on those before it:
//
//  1. Layer time (layerprofile): the forward and backward pass of a layer on a device, for a tensor degree and a micro-batch, interpolated between
//     measurements.
//  2. Stage cost (costmodel): a stage's step, what it exchanges and updates once an iteration, what it sends on, and the memory of its devices,
//     from its layers, device groups and strategies.
//  3. Plan cost (costmodel, pipeline): the length of an iteration. By formula it is the sum of all steps, the longest step for every further
//     micro-batch, and the longest exchange and update. The simulation of package pipeline goes pass by pass and is what is printed.
//  4. Search (search): dynamic programming over the cuts of the layers, the devices and the strategies, by formula, under every preset condition
//     (global batch, replicas, micro-batch).
//  5. Refine (refine): local search from the best of these plans, by simulation, over all that Predict accepts: unequal replicas, other shares,
//     devices left out. Other schedules than 1F1B are then tried on what was found.
//  6. Bound (bound), if asked for: a time that no plan within the options takes less than, so that one sees how much may be missed.
//
// The method is that of the patent of the Hangzhou Binjiang Institute of Blockchain and Data Security on model-parallel training of heterogeneous
// systems. Every formula, and what follows which claim, is in docs/reference/cost-model.md, what the dynamic programming covers in
// docs/decisions/0010-space-of-plans.md.
package planner
