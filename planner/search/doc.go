// Package search finds the cheapest pipeline plan under any cost function: how many stages, which consecutive layers each
// takes, on how many devices of each class, and which of the ways to run a stage. Costs describes a job under one preset
// condition; Run searches over all conditions and returns the cheapest plans with a lower bound. See the Example.
//
// The method is dynamic programming from the last stage to the first. A state is what the stages chosen so far leave to those before them: the layers
// and the devices. For each state it keeps the Pareto points of (largest step, the first stage's own step, sum of steps, per-iteration cost): a
// point that is worse in all four than another can never become the better plan. Branch and bound prunes points from which even the least that the
// remaining layers can take leads to no cheaper plan than one that is known. It follows the patent of the Hangzhou
// Binjiang Institute of Blockchain and Data Security on model-parallel training of heterogeneous systems, and departs from
// it in keeping all Pareto points where the patent keeps one, and in finding all pipeline degrees in one pass.
package search
