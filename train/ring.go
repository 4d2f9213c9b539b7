package train

import "time"

// ring is the nodes in a circle; each hands to the next one. It is an all-reduce in memory with the traffic of a real
// one: every node sends and receives 2 (n-1)/n of the data (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009).
type ring struct {
	links     []*link // link i leads from node i to the next one
	bandwidth float64 // bytes per second of a link; 0: as fast as memory
}

// link carries one message at a time. The sender copies into its buffers in turn: when it fills one again, a message that
// was sent after that buffer's has been taken, so the receiver has done with it.
type link struct {
	data    chan message
	buffers [3][]float32
	turn    int
}

type message struct {
	part []float32
	sent time.Time
}

func newRing(nodes int, bandwidth float64) *ring {
	r := &ring{bandwidth: bandwidth}
	for range nodes {
		r.links = append(r.links, &link{data: make(chan message, 1)})
	}
	return r
}

// part is the k-th of n nearly equal parts.
func part(data []float32, k, n int) []float32 {
	return data[k*len(data)/n : (k+1)*len(data)/n]
}

// sum replaces the data of every node by the sum over all nodes, the same bits on each: a part is summed up by one
// node, in the order of the ring, and then handed around. Every node calls it with as much data.
func (r *ring) sum(node int, data []float32) {
	n := len(r.links)
	if n == 1 {
		return
	}
	mod := func(k int) int { return ((k % n) + n) % n }
	for s := range n - 1 {
		r.pass(node, part(data, mod(node-s), n), part(data, mod(node-s-1), n), add)
	}
	for s := range n - 1 {
		r.pass(node, part(data, mod(node+1-s), n), part(data, mod(node-s), n), func(in, from []float32) { copy(in, from) })
	}
}

// pass hands a part to the next node and takes one from the node before.
func (r *ring) pass(node int, out, in []float32, take func(in, from []float32)) {
	to, from := r.links[node], r.links[(node+len(r.links)-1)%len(r.links)]
	buffer := append(to.buffers[to.turn][:0], out...)
	to.buffers[to.turn] = buffer
	to.turn = (to.turn + 1) % len(to.buffers)
	to.data <- message{buffer, time.Now()}
	m := <-from.data
	if r.bandwidth > 0 {
		time.Sleep(time.Until(m.sent.Add(time.Duration(4 * float64(len(m.part)) / r.bandwidth * 1e9))))
	}
	take(in, m.part)
}

func add(in, from []float32) {
	for i, v := range from {
		in[i] += v
	}
}
