// Package refine makes plans quicker by local search over everything that the cost model can price: unequal replicas, other
// shares, a tensor degree for each layer, unused devices. It knows stages and prices, but not plan files or the search.
//
// It improves each plan in two ways, because each finds plans that the other misses (docs/decisions/0027-refined-plans.md).
// Descents take the first small change that helps, from the best plan so far and from random changes of it (iterated local
// search: Lourenco, Martin and Stutzle, 2003). Walks take random steps that may lengthen the iteration for a while (threshold
// accepting: Dueck and Scheuer, 1990). The measure is the simulated time. The same plans give the same result on any number of
// processors, unless the context ends.
package refine
