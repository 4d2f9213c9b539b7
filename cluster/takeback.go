package cluster

// mostTries is how often dealing continues beyond the global batch before the allocation
// fails. Only clusters whose nodes all take micro-batches of several samples need more than one try.
const mostTries = 1000

// mostExcess bounds the memory of the search for a sum, in samples.
const mostExcess = 1 << 20

// takeBack lowers shares by excess samples in total. allowed says whether node i may have b
// samples instead of its share. The node with the highest index that can give all of the
// excess gives it; if there is none, several nodes give it, found from the highest index by
// dynamic programming (subset sum). False: no sum fits, and the shares are as before.
func (a *Allocator) takeBack(c *Cluster, sizes []int, excess int, allowed func(i, b int) bool) bool {
	for i := len(sizes) - 1; i >= 0; i-- {
		b := sizes[i] - excess
		if b >= 0 && sizes[i] > 0 && c.Nodes[i].floorShare(b) == b && allowed(i, b) {
			sizes[i] = b
			return true
		}
	}
	if a.shave(c, sizes, excess, allowed) {
		return true
	}
	if excess > mostExcess {
		return false
	}
	// from[e] is the node that first made the sum e reachable, and the sum before it.
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

// shave lowers the shares of nodes with equal micro-steps of any size, none below its least, by excess samples in total.
func (a *Allocator) shave(c *Cluster, sizes []int, excess int, allowed func(i, b int) bool) bool {
	spare := func(i int) int {
		n := &c.Nodes[i]
		if n.Equal == 0 || len(n.Shapes) > 0 || sizes[i] == 0 || !allowed(i, n.LeastShare()) {
			return 0
		}
		return sizes[i] - n.LeastShare()
	}
	all := 0
	for i := range sizes {
		all += spare(i)
	}
	for i := len(sizes) - 1; i >= 0 && all >= excess && excess > 0; i-- {
		give := min(spare(i), excess)
		sizes[i], all, excess = sizes[i]-give, all-give, excess-give
	}
	return excess == 0
}

// spared says whether a node keeps some of its share.
func spared(_, b int) bool { return b > 0 }

// TakeBack lowers shares by excess samples in total, a share to 0 only if the others cannot
// give enough. The error wraps ErrCapacity if no shares with this sum are found.
func (a *Allocator) TakeBack(c *Cluster, sizes []int, excess int) error {
	if excess == 0 || a.takeBack(c, sizes, excess, spared) || a.takeBack(c, sizes, excess, func(int, int) bool { return true }) {
		return nil
	}
	return c.odd()
}
