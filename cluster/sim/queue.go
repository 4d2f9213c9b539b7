package sim

import "time"

// queue orders the nodes' next events by time, the earlier pushed first among equals.
// A node has at most one event. The binary heap is written out, because container/heap calls
// its comparison through an interface, which takes a third of a round.
type queue struct {
	events []event
	at     []time.Duration // per node: its newest event, also once it is over
	pushed uint64
}

type event struct {
	at       time.Duration
	sequence uint64
	node     int32
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.sequence < o.sequence
}

func (q *queue) push(node int, at time.Duration) {
	q.at[node] = at
	q.pushed++
	q.events = append(q.events, event{at, q.pushed, int32(node)})
	q.up(len(q.events) - 1)
}

func (q *queue) pop() int {
	node := int(q.events[0].node)
	q.drop(0)
	return node
}

// remove removes a node's event. It searches, because it is rare.
func (q *queue) remove(node int) {
	for k := range q.events {
		if q.events[k].node == int32(node) {
			q.drop(k)
			return
		}
	}
}

// drop removes event k.
func (q *queue) drop(k int) {
	last := len(q.events) - 1
	moved := q.events[last]
	q.events = q.events[:last]
	if k < last {
		q.events[k] = moved
		q.down(k)
		q.up(k)
	}
}

func (q *queue) up(k int) {
	e := q.events[k]
	for k > 0 {
		parent := (k - 1) / 2
		if !e.before(&q.events[parent]) {
			break
		}
		q.events[k] = q.events[parent]
		k = parent
	}
	q.events[k] = e
}

func (q *queue) down(k int) {
	e := q.events[k]
	for child := 2*k + 1; child < len(q.events); child = 2*k + 1 {
		if right := child + 1; right < len(q.events) && q.events[right].before(&q.events[child]) {
			child = right
		}
		if !q.events[child].before(&e) {
			break
		}
		q.events[k] = q.events[child]
		k = child
	}
	q.events[k] = e
}

// move moves all events to their times in at.
func (q *queue) move() {
	for k := range q.events {
		q.events[k].at = q.at[q.events[k].node]
	}
	for k := len(q.events)/2 - 1; k >= 0; k-- {
		q.down(k)
	}
}
