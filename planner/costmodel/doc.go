// Package costmodel prices hybrid-parallel plans: seconds and bytes of every stage, term by term, from a layer profile, a cluster's topology and
// options. Times are seconds, sizes bytes of one device. docs/reference/cost-model.md has every formula.
//
// New makes a Model. It consists of:
//
//   - layers (layers.go): the layers, numbered by what they cost;
//   - devices (devices.go): classes of devices, their machines, and the tensor degrees that they can have;
//   - links (links.go): how long devices take to send and gather, over paths within and between machines. A collective takes the
//     cheaper of a ring over all replicas and a hierarchy (within machines, then between them);
//   - the options (options.go) and the calibration (calibration.go).
//
// A price is made in these steps:
//
//  1. A layer on a device (layer.go): OnDevice gives its Times and Memory under a strategy. Holding (holding.go) is what the device holds of the
//     layer's parameters.
//  2. A stage (price.go): Model.Price sums its layers for each device group. The step is that of the slowest group, plus conversion
//     between tensor degrees and sending on. Pricer does the same and remembers stages.
//  3. An iteration: Cost has the seconds by formula; Cost.Simulated simulates 1F1B; PriceScheduled (scheduled.go) orders the passes
//     of other schedules.
//
// For package search, Conditions (condition.go) are its cost functions, one for each preset condition. A Condition chooses the strategies of a
// stage's layers itself: as a knapsack (pack.go). Stages turns a plan that
// the search found into stage configurations.
//
// Variants of a Model (variants.go) price other plans by the same rules: In a spread (context and expert parallelism), Restricted to what a trainer
// runs, Calibrated, WithMemory. Parts lists the variants that together price all plans, for package bound.
package costmodel
