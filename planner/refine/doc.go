// Package refine makes plans quicker by local search over everything that the cost model can price: unequal replicas, other
// shares, a tensor degree for each layer, unused devices. It knows stages and prices, but not plan files or the search.
//
// It takes the first small change that helps, until none does, from the best plan so far and from random changes of it (iterated
// local search: Lourenco, Martin and Stutzle, 2003). The measure is the simulated time. The same plans give the same result on any
// number of processors, unless the context ends.
package refine
