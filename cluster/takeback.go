package cluster

import "fmt"

// mostTries is how often dealing goes on beyond the global batch before no allocation is
// taken to exist. Only micro-batches of several samples on every node need more than one.
const mostTries = 1000

// mostExcess bounds the memory of the search for a sum, in samples.
const mostExcess = 1 << 20

// takeBack lowers shares by excess samples in all, where micro-batches of several samples
// have overshot the global batch. allowed says whether node i may have b samples instead of
// what it has. The node with the highest index that can give all of it does; if there is none,
// the first sum of several, from the highest index, found by dynamic programming (subset
// sum). False: no sum fits, and the shares are as before.
func (a *Allocator) takeBack(c *Cluster, sizes []int, excess int, allowed func(i, b int) bool) bool {
	for i := len(sizes) - 1; i >= 0; i-- {
		b := sizes[i] - excess
		if b >= 0 && sizes[i] > 0 && c.Nodes[i].floorShare(b) == b && allowed(i, b) {
			sizes[i] = b
			return true
		}
	}
	if excess > mostExcess {
		return false
	}
	// from[e] is the node that made the sum e reachable first, and what the sum was before.
	type step struct{ node, before int32 }
	from := make([]step, excess+1)
	for e := range from {
		from[e].node = -1
	}
	reached := []int{0}
	for i := len(sizes) - 1; i >= 0 && from[excess].node < 0; i-- {
		n, before := &c.Nodes[i], len(reached)
		for b := sizes[i]; b > 0; {
			b = n.floorShare(b - 1)
			give := sizes[i] - b
			if give > excess {
				break
			}
			if !allowed(i, b) {
				continue
			}
			for _, e := range reached[:before] {
				if sum := e + give; sum <= excess && sum > 0 && from[sum].node < 0 {
					from[sum] = step{int32(i), int32(e)}
					reached = append(reached, sum)
				}
			}
		}
	}
	if from[excess].node < 0 {
		return false
	}
	for e := excess; e > 0; e = int(from[e].before) {
		sizes[from[e].node] -= e - int(from[e].before)
	}
	return true
}

// spared says that a node keeps some of its share.
func spared(_, b int) bool { return b > 0 }

// TakeBack lowers shares by excess samples in all, to 0 only if the others cannot give
// enough. The error wraps ErrCapacity if no shares with this sum are found.
func (a *Allocator) TakeBack(c *Cluster, sizes []int, excess int) error {
	if excess == 0 || a.takeBack(c, sizes, excess, spared) || a.takeBack(c, sizes, excess, func(int, int) bool { return true }) {
		return nil
	}
	return c.odd()
}

// most is the largest share of node i: within the bound on micro-steps and the global batch.
func (c *Cluster) most(i int) int {
	n := &c.Nodes[i]
	if c.Single {
		return n.floorStep(c.GlobalBatch)
	}
	return n.MostShare(c.GlobalBatch)
}

// AllocateOnce writes the shares that finish soonest where every node takes exactly one
// micro-step, for work that is not accumulated. Returns and errors as for Allocate.
func (a *Allocator) AllocateOnce(c *Cluster, perf []Performance, sizes []int) (float64, error) {
	once := *c
	once.Single = true
	finish, err := a.Allocate(&once, nil, perf, sizes)
	if err != nil {
		return 0, err
	}
	// Who got nothing would finish after all others even with the least, so it does not
	// matter from whom that is taken.
	missing := 0
	for i, b := range sizes {
		if b == 0 {
			missing += c.Nodes[i].LeastShare()
		}
	}
	if missing > 0 && !a.takeBack(c, sizes, missing, spared) {
		return 0, fmt.Errorf("%w: %d nodes need their least micro-batch each, the batch is %d", ErrCapacity, len(c.Nodes), c.GlobalBatch)
	}
	for i, b := range sizes {
		if b == 0 {
			sizes[i] = c.Nodes[i].LeastShare()
			finish = max(finish, c.Nodes[i].Finish(perf[i], sizes[i]))
		}
	}
	return finish, nil
}

// divisor is the greatest common divisor of the shares that the node takes and of d.
func (n *Node) divisor(d int) int {
	gcd := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	full := n.Full()
	if len(n.Shapes) == 0 {
		if full > n.LeastShare() {
			return 1
		}
		return gcd(full, d)
	}
	for _, s := range n.Shapes {
		if s <= full {
			d = gcd(s, d)
		}
	}
	return d
}
