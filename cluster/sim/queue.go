package sim

import (
	"container/heap"
	"time"
)

// queue orders the nodes' next events by time, the earlier pushed first among equals.
// A node has at most one event. Elements travel through the struct rather than
// through Push's and Pop's any, which would allocate.
type queue struct {
	nodes    []int32
	at       []time.Duration // per node
	sequence []uint64        // per node
	pushed   uint64
	moving   int32
}

func (q *queue) push(node int, at time.Duration) {
	q.at[node] = at
	q.pushed++
	q.sequence[node] = q.pushed
	q.moving = int32(node)
	heap.Push(q, nil)
}

func (q *queue) pop() int {
	heap.Pop(q)
	return int(q.moving)
}

// remove takes out a node's event; rare, so it searches.
func (q *queue) remove(node int) {
	for k, n := range q.nodes {
		if n == int32(node) {
			heap.Remove(q, k)
			return
		}
	}
}

func (q *queue) Len() int { return len(q.nodes) }
func (q *queue) Less(i, j int) bool {
	a, b := q.nodes[i], q.nodes[j]
	if q.at[a] != q.at[b] {
		return q.at[a] < q.at[b]
	}
	return q.sequence[a] < q.sequence[b]
}
func (q *queue) Swap(i, j int) { q.nodes[i], q.nodes[j] = q.nodes[j], q.nodes[i] }
func (q *queue) Push(any)      { q.nodes = append(q.nodes, q.moving) }
func (q *queue) Pop() any {
	last := len(q.nodes) - 1
	q.moving = q.nodes[last]
	q.nodes = q.nodes[:last]
	return nil
}
