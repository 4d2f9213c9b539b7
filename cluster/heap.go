package cluster

import "slices"

// nextFinish is a binary heap of nodes by the time they would finish their next share; the first is at the top. Package
// container/heap would do, at twice the time.
type nextFinish []next

// next is when a node would finish its next share, in seconds.
type next struct {
	at   float64
	node int
}

// before orders by time, ties to the lower index.
func (a next) before(b next) bool { return a.at < b.at || a.at == b.at && a.node < b.node }

// reset fills the heap with the nodes whose share can grow without exceeding most. finish is when node i has done b samples.
func (h *nextFinish) reset(c *Cluster, most, sizes []int, finish func(i, b int) float64) {
	*h = slices.Grow((*h)[:0], len(c.Nodes))
	for i := range c.Nodes {
		if b := c.Nodes[i].nextShare(sizes[i]); fits(b, most[i]) {
			*h = append(*h, next{finish(i, b), i})
		}
	}
	for k := len(*h)/2 - 1; k >= 0; k-- {
		h.sink(k)
	}
}

// sink moves the element at k down to where it belongs.
func (h *nextFinish) sink(k int) {
	heap := *h
	moved := heap[k]
	for {
		child := 2*k + 1
		if child >= len(heap) {
			break
		}
		if right := child + 1; right < len(heap) && heap[right].before(heap[child]) {
			child = right
		}
		if !heap[child].before(moved) {
			break
		}
		heap[k] = heap[child]
		k = child
	}
	heap[k] = moved
}

// fits says whether a node whose largest share is most can have the next one, 0 for none.
func fits(next, most int) bool { return next > 0 && next <= most }

// again sets when the node at the top would finish its next share, and restores the order.
func (h *nextFinish) again(at float64) {
	(*h)[0].at = at
	h.sink(0)
}

// drop removes the node at the top.
func (h *nextFinish) drop() {
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	if *h = (*h)[:last]; last > 0 {
		h.sink(0)
	}
}

// deal gives the node that finishes its next samples first these samples, or up to missing
// samples if it does them in the same time. It returns how many.
func (h *nextFinish) deal(c *Cluster, perf []Performance, most, sizes []int, missing int) int {
	i, t := (*h)[0].node, (*h)[0].at
	n, before := &c.Nodes[i], sizes[i]
	sizes[i] = n.nextShare(before)
	if missing > sizes[i]-before {
		if b := share(n, perf[i], t, min(most[i], n.floorShare(before+missing))); b > sizes[i] && n.Finish(perf[i], b) <= t {
			sizes[i] = b
		}
	}
	if b := n.nextShare(sizes[i]); fits(b, most[i]) {
		h.again(n.Finish(perf[i], b))
	} else {
		h.drop()
	}
	return sizes[i] - before
}
