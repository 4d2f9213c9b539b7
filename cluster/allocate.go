package cluster

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
)

// ErrCapacity says that no allocation can hold the global batch.
var ErrCapacity = errors.New("cluster: the nodes cannot hold the global batch")

// Allocate writes into sizes the micro-batches that finish soonest: among all
// integer sizes with 1 <= b <= Limit that sum to the global batch, those with the
// smallest latest finish time, and among these the ones reached by always giving
// the next sample to the node that would finish it first (ties to the lower index).
// It returns that latest finish time in seconds.
//
// present says which nodes take part (nil: all); an absent node gets 0. Equal finish
// times are found by bisecting the common finish time (water-filling, Cannikin's
// OptPerf), then whole samples are dealt from a heap: O(N log N) at most, no
// allocation of memory beyond the heap's.
//
// The error wraps ErrCapacity when the limits, or the one sample that every node
// needs, cannot meet the global batch.
func Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	var a Allocator
	return a.Allocate(c, present, perf, sizes)
}

// Allocator is Allocate with its working memory kept between calls. The zero value
// is ready to use.
type Allocator struct {
	next nextFinish
}

// Allocate is the function Allocate; see there.
func (a *Allocator) Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	if len(perf) != len(c.Nodes) || len(sizes) != len(c.Nodes) {
		return 0, fmt.Errorf("cluster: %d nodes, but %d performance parameters and %d sizes", len(c.Nodes), len(perf), len(sizes))
	}
	if err := c.CheckCapacity(present); err != nil {
		return 0, err
	}
	low, high, nodes := 0.0, 0.0, 0
	for i := range c.Nodes {
		sizes[i] = 0
		if present != nil && !present[i] {
			continue
		}
		if p := perf[i]; !(p.PerSample > 0) || math.IsInf(p.PerSample, 0) || !(p.Overhead >= 0) || math.IsInf(p.Overhead, 0) {
			return 0, fmt.Errorf("cluster: node %s: performance parameters %+v must be finite, seconds per sample above zero", c.Nodes[i].Name, p)
		}
		nodes++
		// Every node holding all it could bounds the common finish time from above.
		high = max(high, c.Nodes[i].Finish(perf[i], min(c.Nodes[i].Limit, c.GlobalBatch)))
	}
	// Invariant: the shares at low sum to at most the global batch (at 0 they are one
	// each). Whole samples are dealt afterwards, so the bisection stops once no more
	// than half a sample per node is missing.
	for range 64 {
		mid := low + (high-low)/2
		sum := 0
		for i := range c.Nodes {
			if present == nil || present[i] {
				sum += share(&c.Nodes[i], perf[i], mid)
			}
			if sum > c.GlobalBatch {
				break
			}
		}
		if sum > c.GlobalBatch {
			high = mid
			continue
		}
		low = mid
		if c.GlobalBatch-sum <= nodes/2 {
			break
		}
	}
	total := 0
	for i := range c.Nodes {
		if present == nil || present[i] {
			sizes[i] = share(&c.Nodes[i], perf[i], low)
			total += sizes[i]
		}
	}
	a.next.reset(c, present, perf, sizes)
	for ; total < c.GlobalBatch; total++ {
		a.next.deal(c, perf, sizes)
	}
	finish := 0.0
	for i, b := range sizes {
		if b > 0 {
			finish = max(finish, c.Nodes[i].Finish(perf[i], b))
		}
	}
	return finish, nil
}

// CheckCapacity says whether the present nodes (nil: all) can hold the global batch.
func (c *Cluster) CheckCapacity(present []bool) error {
	hold, nodes := 0, 0
	for i := range c.Nodes {
		if present != nil && !present[i] {
			continue
		}
		nodes++
		if c.Nodes[i].Limit < 1 {
			return fmt.Errorf("%w: node %s (%s) has no memory for a single sample of %s; leave it out or give it more memory",
				ErrCapacity, c.Nodes[i].Name, c.Nodes[i].Device, c.Workload)
		}
		if hold < c.GlobalBatch {
			hold += min(c.Nodes[i].Limit, c.GlobalBatch)
		}
	}
	switch {
	case nodes == 0:
		return fmt.Errorf("%w: no node takes part", ErrCapacity)
	case nodes > c.GlobalBatch:
		return fmt.Errorf("%w: %d nodes need at least one sample each, global_batch is %d", ErrCapacity, nodes, c.GlobalBatch)
	case hold < c.GlobalBatch:
		return fmt.Errorf("%w: the memory limits of %d nodes hold %d samples together, global_batch is %d; lower it, or add nodes or memory",
			ErrCapacity, nodes, hold, c.GlobalBatch)
	}
	return nil
}

// share is the largest size that finishes by t, at least 1 and at most the limit.
func share(n *Node, p Performance, t float64) int {
	w := (t - p.Overhead) / p.PerSample
	if w <= 0 {
		return 1
	}
	b := n.samples(w)
	if b >= float64(n.Limit) {
		return n.Limit
	}
	return max(1, int(b))
}

// nextFinish is a heap of nodes by the time they would finish one sample more.
type nextFinish struct {
	node   []int32
	finish []float64
}

func (h *nextFinish) reset(c *Cluster, present []bool, perf []Performance, sizes []int) {
	h.node, h.finish = h.node[:0], h.finish[:0]
	for i := range c.Nodes {
		if (present == nil || present[i]) && sizes[i] < c.Nodes[i].Limit {
			h.node = append(h.node, int32(i))
			h.finish = append(h.finish, c.Nodes[i].Finish(perf[i], sizes[i]+1))
		}
	}
	heap.Init(h)
}

// deal gives one sample to the node that finishes it first.
func (h *nextFinish) deal(c *Cluster, perf []Performance, sizes []int) {
	i := h.node[0]
	sizes[i]++
	if sizes[i] == c.Nodes[i].Limit {
		heap.Remove(h, 0)
		return
	}
	h.finish[0] = c.Nodes[i].Finish(perf[i], sizes[i]+1)
	heap.Fix(h, 0)
}

func (h *nextFinish) Len() int { return len(h.node) }
func (h *nextFinish) Less(i, j int) bool {
	if h.finish[i] != h.finish[j] {
		return h.finish[i] < h.finish[j]
	}
	return h.node[i] < h.node[j]
}

func (h *nextFinish) Swap(i, j int) {
	h.node[i], h.node[j] = h.node[j], h.node[i]
	h.finish[i], h.finish[j] = h.finish[j], h.finish[i]
}
func (h *nextFinish) Push(any) { panic("cluster: the heap of next finish times never grows") }
func (h *nextFinish) Pop() any {
	h.node, h.finish = h.node[:len(h.node)-1], h.finish[:len(h.finish)-1]
	return nil
}

// Uniform writes the same size for every present node, as far as the limits allow:
// what trainers do without a tuner. Same guarantees as Allocate.
func (a *Allocator) Uniform(c *Cluster, present []bool, sizes []int) error {
	return a.Proportional(c, present, nil, sizes)
}

// Proportional writes sizes in proportion to weight (nil: equal) by largest
// remainder, each between 1 and its limit, summing to the global batch. It is the
// projection that every rule which names sizes rather than parameters ends in.
func (a *Allocator) Proportional(c *Cluster, present []bool, weight []float64, sizes []int) error {
	if err := c.CheckCapacity(present); err != nil {
		return err
	}
	w := func(i int) float64 {
		if weight == nil {
			return 1
		}
		if v := weight[i]; v > 0 && !math.IsInf(v, 0) {
			return v
		}
		return 0
	}
	size := func(i int, level float64) float64 {
		return min(max(level*w(i), 1), float64(min(c.Nodes[i].Limit, c.GlobalBatch)))
	}
	top := 0.0
	for i := range c.Nodes {
		if v := w(i); (present == nil || present[i]) && v > 0 {
			top = max(top, float64(c.GlobalBatch)/v)
		}
	}
	// Scale the weights until the clipped sizes sum to the global batch.
	low, high := 0.0, top
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
		sizes[i] = int(exact + 1e-9)
		total += sizes[i]
		h.node = append(h.node, int32(i))
		h.finish = append(h.finish, float64(sizes[i])-exact)
	}
	heap.Init(h)
	for total < c.GlobalBatch && h.Len() > 0 {
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
