package cluster

import (
	"fmt"
	"math"
)

// Uniform writes the same size for every present node, as far as the limits allow:
// what trainers do without a tuner. Same guarantees as Proportional.
func (a *Allocator) Uniform(c *Cluster, present []bool, sizes []int) error {
	return a.Proportional(c, present, nil, sizes)
}

// leastWeight is the least weight, relative to the largest: such nodes get samples only when
// the others have no room.
const leastWeight = 1e-9

// Proportional writes shares in proportion to weight (nil: equal), rounded by largest
// remainder; ties go to the lower index. The shares are made of micro-steps that the nodes
// take, and sum to the global batch. Each is at least the node's least share, as long as the
// least shares fit into the global batch and micro-batches of several samples allow it. A
// weight that is zero, negative or not finite gets the least share, as long as other nodes have
// room. Policies that choose sizes rather than parameters end with this step. Errors are
// those of Allocate.
func (a *Allocator) Proportional(c *Cluster, present []bool, weight []float64, sizes []int) error {
	if len(sizes) != len(c.Nodes) || weight != nil && len(weight) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but %d weights and %d sizes", len(c.Nodes), len(weight), len(sizes))
	}
	if err := c.CheckCapacity(present); err != nil {
		return err
	}
	p := newProportion(c, present, weight)
	level := p.level()
	total := 0
	for i := range c.Nodes {
		sizes[i] = 0
		if p.takesPart(i) {
			sizes[i] = c.Nodes[i].floorShare(int(p.size(i, level)))
			total += sizes[i]
		}
	}
	// By remainder: what a node would have beyond its exact size. An exact size that rounding
	// left just below a whole number is first in the heap.
	beyond := func(i, b int) float64 { return float64(b) - p.size(i, level) }
	h := &a.next
	a.limits(c, present)
	h.reset(c, a.most, sizes, beyond)
	for tries := 0; total != c.GlobalBatch; {
		if total > c.GlobalBatch {
			if a.TakeBack(c, sizes, total-c.GlobalBatch) == nil {
				return nil
			}
			tries++
		}
		if len(*h) == 0 || tries > mostTries {
			return c.odd()
		}
		i := (*h)[0].node
		before, n := sizes[i], &c.Nodes[i]
		sizes[i] = n.nextShare(before)
		total += sizes[i] - before
		if b := n.nextShare(sizes[i]); fits(b, a.most[i]) {
			h.again(beyond(i, b))
		} else {
			h.drop()
		}
	}
	return nil
}

// proportion computes sizes, in fractions of samples, in proportion to weights.
type proportion struct {
	cluster  *Cluster
	present  []bool
	weight   []float64
	heaviest float64 // 0: all weights are equal
	least    bool    // the least shares of all fit into the global batch
}

func newProportion(c *Cluster, present []bool, weight []float64) proportion {
	p := proportion{cluster: c, present: present, weight: weight}
	for i, v := range weight {
		if p.takesPart(i) && v <= math.MaxFloat64 { // nor NaN
			p.heaviest = max(p.heaviest, v)
		}
	}
	sum := 0
	for i := range c.Nodes {
		if p.takesPart(i) && sum <= c.GlobalBatch {
			sum += c.Nodes[i].LeastShare()
		}
	}
	p.least = sum <= c.GlobalBatch
	return p
}

func (p *proportion) takesPart(i int) bool { return p.present == nil || p.present[i] }

// size is the exact size of node i if the heaviest node has level samples.
func (p *proportion) size(i int, level float64) float64 {
	w := 1.0
	if p.heaviest > 0 {
		w = leastWeight
		if v := p.weight[i] / p.heaviest; v <= 1 { // nor NaN
			w = max(v, leastWeight)
		}
	}
	n, size := &p.cluster.Nodes[i], level*w
	if p.least {
		size = max(size, float64(n.LeastShare()))
	}
	return min(size, float64(n.MostShare(p.cluster.GlobalBatch)))
}

// level is the largest level, up to rounding, at which the sizes, clipped to the least and the largest shares, sum to at
// most the global batch.
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
