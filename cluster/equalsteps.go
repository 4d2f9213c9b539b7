package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// SetEqualSteps makes the nodes compute every share in so many micro-steps, 1 to MaxMicroSteps, of sizes that differ by at most
// one sample, as the ranks of FSDP, DeepSpeed and Megatron-LM must; 0: each node in as few as its memory allows.
func (c *Cluster) SetEqualSteps(steps int) {
	for i := range c.Nodes {
		c.Nodes[i].Equal = steps
	}
}

// EqualSteps is what SetEqualSteps has set.
func (c *Cluster) EqualSteps() int {
	if len(c.Nodes) == 0 {
		return 0
	}
	return c.Nodes[0].Equal
}

// BestEqualSteps returns the number of equal micro-steps with which a round finishes soonest; the fewest if several do. It tries
// every number that can be the best. The error wraps ErrCapacity when with none the shares make up the global batch.
func BestEqualSteps(c *Cluster, perf []Performance) (int, error) {
	var a Allocator
	sizes, best, finish := make([]int, len(c.Nodes)), 0, math.Inf(1)
	c = c.Own()
	c.SetEqualSteps(0)
	free := c.check(nil, perf, sizes)
	if free != nil && !errors.Is(free, ErrCapacity) {
		return 0, free
	}
	for steps := 1; steps <= min(MaxMicroSteps, c.GlobalBatch); steps++ {
		c.SetEqualSteps(steps)
		soonest, hold := math.Inf(1), 0 // of the least shares; by the best time so far
		for i := range c.Nodes {
			n := &c.Nodes[i]
			soonest = min(soonest, n.Finish(perf[i], n.LeastShare()))
			hold += share(n, perf[i], finish, n.MostShare(c.GlobalBatch))
		}
		if soonest >= finish {
			break // later with more steps
		}
		if hold < c.GlobalBatch {
			continue
		}
		if at, err := a.Allocate(c, nil, perf, sizes); err == nil && at < finish {
			best, finish = steps, at
		}
	}
	switch {
	case best > 0:
		return best, nil
	case free != nil:
		return 0, free
	}
	return 0, fmt.Errorf("%w: in no equal number of micro-steps do the micro-batches that the nodes take sum to %d; change global_batch or micro_batch", ErrCapacity, c.GlobalBatch)
}

// without returns the nodes present less those that are left out because one sample or more in each equal micro-step of all
// nodes would exceed the global batch: those without which the others finish soonest. Of nodes with Shapes it leaves out none.
func (a *Allocator) without(c *Cluster, present []bool, perf []Performance) []bool {
	steps, least := c.EqualSteps(), 0
	for i := range c.Nodes {
		if n := &c.Nodes[i]; a.most[i] > 0 {
			if len(n.Shapes) > 0 {
				return present
			}
			least += n.LeastShare()
		}
	}
	if steps == 0 || least <= c.GlobalBatch {
		return present
	}
	shares, kept, best := make([]int, len(c.Nodes)), make([]bool, len(c.Nodes)), make([]bool, len(c.Nodes))
	low, high := uint64(0), math.Float64bits(math.MaxFloat64) // positive numbers are in the order of their bits
	for low+1 < high {
		middle := (low + high) / 2
		for i := range shares {
			shares[i] = share(&c.Nodes[i], perf[i], math.Float64frombits(middle), a.most[i])
		}
		if keepMost(c.Nodes, shares, c.GlobalBatch/steps, kept) >= c.GlobalBatch {
			high = middle
			copy(best, kept)
		} else {
			low = middle
		}
	}
	return best
}

// keepMost marks those nodes whose shares have most samples together, where their smallest micro-batches may sum to most, and
// returns the sum of the shares: a knapsack. Where these differ in a very large one, it keeps those with most samples by them.
func keepMost(nodes []Node, shares []int, most int, kept []bool) (total int) {
	clear(kept)
	alike := !slices.ContainsFunc(nodes, func(n Node) bool { return n.LeastStep() != nodes[0].LeastStep() })
	if alike || len(nodes)*most > 1<<24 {
		order := make([]int, len(nodes))
		for i := range order {
			order[i] = i
		}
		worth := func(i int) float64 { return float64(shares[i]) / float64(nodes[i].LeastStep()) }
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(worth(j), worth(i)) })
		for _, i := range order {
			if least := nodes[i].LeastStep(); shares[i] > 0 && least <= most {
				kept[i] = true
				most -= least
				total += shares[i]
			}
		}
		return total
	}
	sums := make([]int, most+1) // by the sum of the smallest micro-batches
	with := make([][]bool, len(nodes))
	for i, share := range shares {
		with[i] = make([]bool, most+1)
		least := nodes[i].LeastStep()
		for w := most; share > 0 && w >= least; w-- {
			if sum := sums[w-least] + share; sum > sums[w] {
				sums[w], with[i][w] = sum, true
			}
		}
	}
	total = sums[most]
	for i, w := range slices.Backward(with) {
		if kept[i] = w[most]; kept[i] {
			most -= nodes[i].LeastStep()
		}
	}
	return total
}
