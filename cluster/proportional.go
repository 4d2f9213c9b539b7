package cluster

import (
	"container/heap"
	"fmt"
	"math"
)

// Uniform writes the same size for every present node, as far as the limits allow:
// what trainers do without a tuner. Same guarantees as Proportional.
func (a *Allocator) Uniform(c *Cluster, present []bool, sizes []int) error {
	return a.Proportional(c, present, nil, sizes)
}

// leastWeight is what a weight counts at least, relative to the largest: enough to share
// out what the others have no room for, too little for a sample of its own.
const leastWeight = 1e-9

// Proportional writes sizes in proportion to weight (nil: equal) by largest
// remainder, each between 1 and its limit, summing to the global batch; ties go to the
// lower index. A weight that is zero, negative or not finite gets one sample as long as
// others have room. It is the projection that every rule which names sizes rather than
// parameters ends in. Errors as for Allocate.
func (a *Allocator) Proportional(c *Cluster, present []bool, weight []float64, sizes []int) error {
	if len(sizes) != len(c.Nodes) || weight != nil && len(weight) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but %d weights and %d sizes", len(c.Nodes), len(weight), len(sizes))
	}
	if err := c.CheckCapacity(present); err != nil {
		return err
	}
	heaviest := 0.0
	for i, v := range weight {
		if (present == nil || present[i]) && v > heaviest && !math.IsInf(v, 0) {
			heaviest = v
		}
	}
	w := func(i int) float64 {
		if heaviest == 0 {
			return 1
		}
		if v := weight[i] / heaviest; v > leastWeight && v <= 1 {
			return v
		}
		return leastWeight
	}
	size := func(i int, level float64) float64 {
		return min(max(level*w(i), 1), float64(min(c.Nodes[i].Limit, c.GlobalBatch)))
	}
	// Scale the weights until the clipped sizes sum to the global batch.
	low, high := 0.0, float64(c.GlobalBatch)/leastWeight
	for range 200 {
		mid := low + (high-low)/2
		sum := 0.0
		for i := range c.Nodes {
			if present == nil || present[i] {
				sum += size(i, mid)
			}
		}
		if sum > float64(c.GlobalBatch) {
			high = mid
		} else {
			low = mid
		}
		if high-low <= 1e-12*high {
			break
		}
	}
	h := &a.next
	h.node, h.finish = h.node[:0], h.finish[:0]
	total := 0
	for i := range c.Nodes {
		sizes[i] = 0
		if present != nil && !present[i] {
			continue
		}
		exact := size(i, low)
		// The nudge keeps a whole number that rounding error left just below itself.
		sizes[i] = int(exact + 1e-9 + 1e-12*exact)
		total += sizes[i]
		h.node = append(h.node, int32(i))
		h.finish = append(h.finish, float64(sizes[i])-exact)
	}
	heap.Init(h)
	for total < c.GlobalBatch {
		i := h.node[0]
		if sizes[i] >= c.Nodes[i].Limit {
			heap.Remove(h, 0)
			continue
		}
		sizes[i]++
		total++
		h.finish[0]++
		heap.Fix(h, 0)
	}
	return nil
}
