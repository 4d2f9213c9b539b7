package cluster

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrCapacity says that no allocation can hold the global batch.
var ErrCapacity = errors.New("cluster: the nodes cannot hold the global batch")

// Allocate writes into sizes the micro-batches that finish soonest: among all
// integer sizes with 1 <= b <= Limit that sum to the global batch, those with the
// smallest latest finish time, and among these the ones reached by always giving
// the next sample to the node that would finish it first (ties to the lower index).
// It returns that latest finish time in seconds.
//
// present says which nodes take part (nil: all); an absent node gets 0. The common
// finish time is searched (water-filling, Cannikin's OptPerf) until less than a sample
// per node is missing; those are dealt one by one from a heap.
//
// The error wraps ErrCapacity when the limits, or the one sample that every node
// needs, cannot meet the global batch. After an error the sizes mean nothing.
func Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	var a Allocator
	return a.Allocate(c, present, perf, sizes)
}

// Allocator is Allocate with its working memory kept between calls. The zero value
// is ready to use.
type Allocator struct {
	next nextFinish
}

// Allocate does what the function Allocate does.
func (a *Allocator) Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	if len(perf) != len(c.Nodes) || len(sizes) != len(c.Nodes) {
		return 0, fmt.Errorf("cluster: %d nodes, but %d performance parameters and %d sizes", len(c.Nodes), len(perf), len(sizes))
	}
	if err := c.CheckCapacity(present); err != nil {
		return 0, err
	}
	for i := range c.Nodes {
		sizes[i] = 0
		if present != nil && !present[i] {
			continue
		}
		if p := perf[i]; !(p.PerSample > 0) || math.IsInf(p.PerSample, 0) || !(p.Overhead >= 0) || math.IsInf(p.Overhead, 0) {
			return 0, fmt.Errorf("cluster: node %s: performance parameters %+v must be finite, Overhead at least 0 and PerSample above 0", c.label(i), p)
		}
	}
	var level waterLevel
	level.begin(c, present, perf)
	low := level.find(c, present, perf)
	total := 0
	for i := range c.Nodes {
		if present == nil || present[i] {
			sizes[i] = share(&c.Nodes[i], perf[i], low, c.GlobalBatch)
			total += sizes[i]
		}
	}
	a.next.reset(c, present, perf, sizes)
	for total < c.GlobalBatch {
		total += a.next.deal(c, perf, sizes, c.GlobalBatch-total)
	}
	finish := 0.0
	for i, b := range sizes {
		if b > 0 {
			finish = max(finish, c.Nodes[i].Finish(perf[i], b))
		}
	}
	return finish, nil
}

// waterLevel searches the common finish time. Invariant: the shares at low sum to at
// most the global batch (at 0 they are one each), those at high to more.
type waterLevel struct {
	low, high   float64 // seconds
	rate, start float64 // of the straight line that the sum would be: rate*t - start
	nodes       int
	steps       int // evaluations of all nodes
}

func (l *waterLevel) begin(c *Cluster, present []bool, perf []Performance) {
	*l = waterLevel{high: math.Inf(1)}
	for i := range c.Nodes {
		if present == nil || present[i] {
			l.nodes++
			l.rate += 1 / perf[i].PerSample
			l.start += perf[i].Overhead / perf[i].PerSample
		}
	}
}

// find returns a time at which the shares sum to at most the global batch, and to less
// than a sample per node below it unless many samples finish at the same moment.
func (l *waterLevel) find(c *Cluster, present []bool, perf []Performance) float64 {
	t := (float64(c.GlobalBatch) + l.start) / l.rate
	for l.steps = 1; ; l.steps++ {
		// The line's guess mostly settles it in a few steps. Every third one halves the
		// floating-point numbers in between, so the search ends for every curve.
		if !(t > l.low && t < l.high) || l.steps%3 == 0 {
			t = math.Float64frombits((math.Float64bits(l.low) + math.Float64bits(l.high)) / 2)
			if t == l.low {
				return l.low
			}
		}
		sum := 0
		for i := range c.Nodes {
			if present == nil || present[i] {
				sum += share(&c.Nodes[i], perf[i], t, c.GlobalBatch)
			}
		}
		if missing := c.GlobalBatch - sum; missing < 0 {
			l.high = t
		} else if l.low = t; missing <= l.nodes/2 {
			return l.low
		}
		// Aim a little low: a guess that leaves few samples to deal ends the search.
		t += (float64(c.GlobalBatch-sum) - 0.25*float64(l.nodes)) / l.rate
	}
}

// CheckCapacity returns an error unless the present nodes (nil: all) can hold the global batch.
func (c *Cluster) CheckCapacity(present []bool) error {
	if present != nil && len(present) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but presence of %d", len(c.Nodes), len(present))
	}
	hold, nodes := 0, 0
	for i := range c.Nodes {
		if present != nil && !present[i] {
			continue
		}
		nodes++
		if c.Nodes[i].Limit < 1 {
			return fmt.Errorf("%w: node %s: Limit is %d; set it to the largest micro-batch its memory holds, or profile.NoLimit",
				ErrCapacity, c.label(i), c.Nodes[i].Limit)
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

// label names a node in messages: its name with its device, or its number.
func (c *Cluster) label(i int) string {
	n := &c.Nodes[i]
	switch {
	case n.Name == "":
		return strconv.Itoa(i)
	case n.Device == "":
		return n.Name
	}
	return fmt.Sprintf("%s (%s)", n.Name, n.Device)
}

// share is the largest size that finishes by t, at least 1 and at most the limit and most.
func share(n *Node, p Performance, t float64, most int) int {
	w := (t - p.Overhead) / p.PerSample
	if !(w > 0) {
		return 1
	}
	most = min(most, n.Limit)
	b := n.samples(w)
	if b >= float64(most) {
		return most
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

// deal gives a sample to the node that finishes it first and returns 1, or more where
// that node would take up to missing samples in the same time.
func (h *nextFinish) deal(c *Cluster, perf []Performance, sizes []int, missing int) int {
	i, t := h.node[0], h.finish[0]
	n, before := &c.Nodes[i], sizes[i]
	sizes[i]++
	if b := share(n, perf[i], t, before+missing); b > sizes[i] && n.Finish(perf[i], b) <= t {
		sizes[i] = b
	}
	if sizes[i] == n.Limit {
		heap.Remove(h, 0)
	} else {
		h.finish[0] = n.Finish(perf[i], sizes[i]+1)
		heap.Fix(h, 0)
	}
	return sizes[i] - before
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
