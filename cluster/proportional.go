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
// others have room. Policies that choose sizes rather than parameters end in
// this projection. Errors as for Allocate.
func (a *Allocator) Proportional(c *Cluster, present []bool, weight []float64, sizes []int) error {
	if len(sizes) != len(c.Nodes) || weight != nil && len(weight) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but %d weights and %d sizes", len(c.Nodes), len(weight), len(sizes))
	}
	if err := c.CheckCapacity(present); err != nil {
		return err
	}
	p := newProportion(c, present, weight)
	level := p.level()
	h := &a.next // by remainder: what a node has beyond its exact size
	h.node, h.finish = h.node[:0], h.finish[:0]
	total := 0
	for i := range c.Nodes {
		sizes[i] = 0
		if !p.takesPart(i) {
			continue
		}
		exact := p.size(i, level)
		sizes[i] = int(exact) // a whole number that rounding left just below itself is first in the heap
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

// proportion computes sizes, in fractions of samples, in proportion to weights.
type proportion struct {
	cluster  *Cluster
	present  []bool
	weight   []float64
	heaviest float64 // 0: all weigh the same
}

func newProportion(c *Cluster, present []bool, weight []float64) proportion {
	p := proportion{cluster: c, present: present, weight: weight}
	for i, v := range weight {
		if p.takesPart(i) && v <= math.MaxFloat64 { // nor NaN
			p.heaviest = max(p.heaviest, v)
		}
	}
	return p
}

func (p *proportion) takesPart(i int) bool { return p.present == nil || p.present[i] }

// size is the exact size of node i where the heaviest has level samples.
func (p *proportion) size(i int, level float64) float64 {
	w := 1.0
	if p.heaviest > 0 {
		w = leastWeight
		if v := p.weight[i] / p.heaviest; v <= 1 { // nor NaN
			w = max(v, leastWeight)
		}
	}
	return min(max(level*w, 1), float64(min(p.cluster.Nodes[i].Limit, p.cluster.GlobalBatch)))
}

// level is where the sizes, clipped to 1 and the limits, sum to the global batch; just
// below rather than above.
func (p *proportion) level() float64 {
	batch := float64(p.cluster.GlobalBatch)
	low, high := 0.0, batch/leastWeight
	for high-low > 1e-12*high {
		mid := low + (high-low)/2
		sum := 0.0
		for i := range p.cluster.Nodes {
			if p.takesPart(i) {
				sum += p.size(i, mid)
			}
		}
		if sum > batch {
			high = mid
		} else {
			low = mid
		}
	}
	return low
}
