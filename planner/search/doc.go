// Package search finds the cheapest pipeline plan under any cost function: how many stages, which consecutive layers each
// takes, on how many devices of each class, and which of the ways to run a stage. Costs describes a job under one preset
// condition; Run searches over all conditions and returns the cheapest plans with a lower bound. See the Example.
//
// The method is dynamic programming from the last stage to the first. A state is what the chosen stages leave to the stages
// before them: layers and devices. Each state keeps the Pareto points of (largest step, step of its first stage, sum of steps,
// per-iteration cost); a point that is worse in all four can never lead to the better plan. Branch and bound drops a point if
// even the least cost of the remaining layers leads to no cheaper plan than a known one. The method follows the patent of the
// Hangzhou Binjiang Institute of Blockchain and Data Security on model-parallel training of heterogeneous systems. Unlike the
// patent, it keeps all Pareto points instead of one, and finds all pipeline degrees in one pass.
package search
