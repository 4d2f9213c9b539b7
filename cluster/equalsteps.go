package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// AllocateEqual writes into sizes the shares of the round that finishes soonest if every node with a share makes the same
// number of micro-steps, as the ranks of FSDP, DeepSpeed and Megatron-LM must. The micro-steps of a share differ by at most
// one sample. A node gets 0 where the others finish sooner without it.
// It returns the latest finish time in seconds, and the number of micro-steps.
//
// It tries every number of micro-steps that can be the best, and for each searches the common finish time. With nodes that
// have Shapes it may miss the best.
//
// The error wraps ErrCapacity when no shares make up the global batch. After an error the sizes mean nothing.
func AllocateEqual(c *Cluster, perf []Performance, sizes []int) (float64, int, error) {
	most := func(i int) int { return min(c.Nodes[i].Full(), c.GlobalBatch) * min(c.GlobalBatch, maxMicroSteps) }
	if err := c.check(nil, perf, sizes, most); err != nil {
		return 0, 0, err
	}
	e := equalSteps{c: c, perf: perf, trial: make([]int, len(sizes)), held: make([]int, len(sizes))}
	finish, steps := math.Inf(1), 0
	for e.steps = 1; e.steps <= min(maxMicroSteps, c.GlobalBatch) && e.soonest() < finish; e.steps++ {
		if at, ok := e.allocate(finish); ok {
			finish, steps = at, e.steps
			copy(sizes, e.held)
		}
	}
	if steps == 0 {
		return 0, 0, fmt.Errorf("%w in equal numbers of micro-steps: change global_batch or micro_batch", ErrCapacity)
	}
	return finish, steps, nil
}

// equalSteps allocates for one number of micro-steps.
type equalSteps struct {
	c           *Cluster
	perf        []Performance
	steps       int
	trial, held []int // shares of the newest time tried; those of the best
}

// soonest is when the first node could be done; later for more steps.
func (e *equalSteps) soonest() float64 {
	at := math.Inf(1)
	for i := range e.c.Nodes {
		at = min(at, e.finish(i, e.steps*e.c.Nodes[i].LeastShare()))
	}
	return at
}

// allocate finds shares that finish before the given time, as early as any; ok: there are some.
func (e *equalSteps) allocate(before float64) (at float64, ok bool) {
	latest := 0.0
	for i := range e.c.Nodes {
		latest = max(latest, e.finish(i, e.floor(i, e.c.GlobalBatch)))
	}
	low, high := uint64(0), math.Float64bits(min(latest, math.Nextafter(before, 0)))
	if !e.by(math.Float64frombits(high)) {
		return 0, false
	}
	for copy(e.held, e.trial); low+1 < high; { // positive numbers are in the order of their bits
		if middle := (low + high) / 2; e.by(math.Float64frombits(middle)) {
			high = middle
			copy(e.held, e.trial)
		} else {
			low = middle
		}
	}
	for i, b := range e.held {
		at = max(at, e.finish(i, b))
	}
	return at, true
}

// by says whether the nodes can make up the global batch by a time, and writes their shares.
func (e *equalSteps) by(t float64) bool {
	total, least := 0, 0
	for i := range e.c.Nodes {
		n := sort.Search(e.floor(i, e.c.GlobalBatch)+1, func(b int) bool { return e.finish(i, e.floor(i, b)) > t }) - 1
		e.trial[i] = e.floor(i, max(n, 0))
		if total += e.trial[i]; e.trial[i] > 0 {
			least += e.c.Nodes[i].LeastShare()
		}
	}
	if most := e.c.GlobalBatch / e.steps; least > most && total >= e.c.GlobalBatch {
		total = e.leaveOut(most)
	}
	if total < e.c.GlobalBatch {
		return false
	}
	for _, shapes := range []bool{true, false} { // nodes that take any size have the last word
		for i := range e.trial {
			n := &e.c.Nodes[i]
			if spare := e.trial[i] - e.steps*n.LeastShare(); spare > 0 && (len(n.Shapes) > 0) == shapes {
				total -= e.trial[i]
				e.trial[i] = e.floor(i, max(e.c.GlobalBatch-total, e.steps*n.LeastShare()))
				total += e.trial[i]
			}
		}
	}
	return total == e.c.GlobalBatch
}

// leaveOut keeps the shares of those nodes that have most samples together, where their smallest micro-batches may sum
// to most, and returns their sum: a knapsack. In a very large one it keeps those with most samples by these micro-batches.
func (e *equalSteps) leaveOut(most int) int {
	kept, total := make([]bool, len(e.trial)), 0
	if len(kept)*most > 1<<24 {
		order := make([]int, len(kept))
		for i := range order {
			order[i] = i
		}
		worth := func(i int) float64 { return float64(e.trial[i]) / float64(e.c.Nodes[i].LeastShare()) }
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(worth(j), worth(i)) })
		for _, i := range order {
			if least := e.c.Nodes[i].LeastShare(); least <= most {
				kept[i] = true
				most -= least
			}
		}
	} else {
		sums := make([]int, most+1) // by the sum of the smallest micro-batches
		with := make([][]bool, len(kept))
		for i, share := range e.trial {
			with[i] = make([]bool, most+1)
			least := e.c.Nodes[i].LeastShare()
			for w := most; share > 0 && w >= least; w-- {
				if sum := sums[w-least] + share; sum > sums[w] {
					sums[w], with[i][w] = sum, true
				}
			}
		}
		for i, w := range slices.Backward(with) {
			if kept[i] = w[most]; kept[i] {
				most -= e.c.Nodes[i].LeastShare()
			}
		}
	}
	for i := range kept {
		if !kept[i] {
			e.trial[i] = 0
		}
		total += e.trial[i]
	}
	return total
}

// floor is the largest share of a node up to b, 0 if there is none.
func (e *equalSteps) floor(i, b int) int {
	n := &e.c.Nodes[i]
	small, more := n.parts(b, e.steps)
	return small*e.steps + more
}

// finish is when a node is done with a share; 0 without one.
func (e *equalSteps) finish(i, b int) float64 {
	if b == 0 {
		return 0
	}
	n := &e.c.Nodes[i]
	small, more := n.parts(b, e.steps)
	return e.perf[i].Overhead + e.perf[i].PerSample*(float64(e.steps-more)*n.stepCost(small)+float64(more)*n.stepCost(small+1))
}

// parts are so many micro-steps, with up to b samples together: more of them have a sample above small.
func (n *Node) parts(b, steps int) (small, more int) {
	small = n.floorStep(b / steps)
	if small > 0 && n.floorStep(small+1) > small {
		more = min(b-small*steps, steps)
	}
	return small, more
}
