// Package refine makes plans quicker by local search over everything that the cost model can price: unequal replicas, other shares, a tensor degree
// for each layer, devices left out. It knows stages and prices, but neither plan files nor how its first plans were found.
//
// Each plan is improved in two ways, as each finds plans that the other misses (docs/decisions/0027-refined-plans.md): descents, by the first small
// change that helps, from the best plan so far and from random changes of it (iterated local search: Lourenco, Martin and Stutzle, 2003); and a walk
// of random steps that may lengthen the iteration for a while (threshold accepting: Dueck and Scheuer, 1990). The measure is the simulated time.
// The same plans give the same result, on any number of processors, as long as the context does not end.
package refine
