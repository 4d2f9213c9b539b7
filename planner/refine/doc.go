// Package refine makes plans quicker by local search over everything that the cost model can price. See Run.
package refine
