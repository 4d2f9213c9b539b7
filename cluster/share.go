package cluster

import "math"

// MaxMicroSteps is the most micro-steps that a node takes in one round.
const MaxMicroSteps = 1 << 14

// A node computes its share of a round in micro-steps: as many full ones as fit into it,
// then at most one smaller; or Node.Equal of them, of sizes that differ by at most one sample.
// Their gradients add up (gradient accumulation), so a share may exceed what memory holds;
// only a micro-step may not.

// LeastStep is the smallest micro-batch that the node takes.
func (n *Node) LeastStep() int {
	if len(n.Shapes) > 0 {
		return n.Shapes[0]
	}
	return max(n.Least, 1)
}

// LeastShare is the smallest share above 0.
func (n *Node) LeastShare() int { return n.LeastStep() * max(n.Equal, 1) }

// Parts are the micro-steps of a share: so many large ones, then so many small ones.
func (n *Node) Parts(share int) (large, size, small, rest int) {
	full := n.Full()
	switch e := n.Equal; {
	case share < 1:
		return 0, 0, 0, 0
	case e > 0 && share%e == 0:
		return e, share / e, 0, 0
	case e > share:
		return share, 1, 0, 0
	case e > 0:
		return share % e, share/e + 1, e - share%e, share / e
	case share <= full || full < 1:
		return 1, share, 0, 0
	}
	return share / full, full, min(share%full, 1), share % full
}

// MicroBatch is the largest micro-step of a share.
func (n *Node) MicroBatch(share int) int {
	_, size, _, _ := n.Parts(share)
	return size
}

// Full is the size of a full micro-step: the largest micro-batch that the node takes and
// its memory holds; 0 if there is none.
func (n *Node) Full() int { return n.floorStep(n.Limit) }

// floorStep is the largest micro-batch up to b that the node takes, 0 if there is none.
func (n *Node) floorStep(b int) int {
	b = min(b, n.Limit)
	for k := len(n.Shapes) - 1; k >= 0; k-- {
		if n.Shapes[k] <= b {
			return n.Shapes[k]
		}
	}
	if len(n.Shapes) > 0 || b < n.LeastStep() {
		return 0
	}
	return b
}

// MostShare is the largest share, at most the given number of samples.
func (n *Node) MostShare(most int) int {
	full := n.Full()
	if full < 1 {
		return 0
	}
	if full <= most/MaxMicroSteps && n.Equal == 0 {
		return full * MaxMicroSteps
	}
	return n.floorShare(most)
}

// floorShare is the largest share up to b.
func (n *Node) floorShare(b int) int {
	full := n.Full()
	if full < 1 || b < 1 {
		return 0
	}
	if n.Equal > 0 {
		size := n.floorStep(b / n.Equal)
		if size < 1 || n.floorStep(size+1) == size {
			return size * n.Equal
		}
		return min(b, (size+1)*n.Equal)
	}
	whole := b / full * full
	return whole + n.floorStep(b-whole)
}

// nextShare is the smallest share above the share b; 0 if there is none.
func (n *Node) nextShare(b int) int {
	full := n.Full()
	if full < 1 {
		return 0
	}
	if n.Equal > 0 {
		switch {
		case b < n.LeastShare():
			return n.LeastShare()
		case n.floorShare(b+1) > b:
			return b + 1
		}
		for _, s := range n.Shapes {
			if s > b/n.Equal && s <= full {
				return s * n.Equal
			}
		}
		return 0
	}
	whole := b / full * full
	rest := b - whole
	if len(n.Shapes) == 0 {
		return whole + min(max(rest+1, n.LeastStep()), full)
	}
	for _, s := range n.Shapes {
		if s > rest {
			return whole + min(s, full)
		}
	}
	return whole + full
}

// Takes says whether a share, 0 included, is made of micro-batches that the node takes.
func (n *Node) Takes(share int) bool { return share >= 0 && n.floorShare(share) == share }

// Steps is the number of micro-steps of a share.
func (n *Node) Steps(share int) int {
	if n.Full() < 1 {
		return 0
	}
	large, _, small, _ := n.Parts(share)
	return large + small
}

// Cost is the time of a share by the profile, in units of the profile's marginal seconds per sample,
// summed over its micro-steps. It has the shape of the measured curve, so that one number per node,
// PerSample, remains to be estimated. Without a profile it is the number of samples.
func (n *Node) Cost(share int) float64 {
	if n.Profile == nil || share < 1 {
		return float64(share)
	}
	large, size, small, rest := n.Parts(share)
	cost := float64(large) * n.stepCost(size)
	if small > 0 {
		cost += float64(small) * n.stepCost(rest)
	}
	return cost
}

// stepCost is the cost of one micro-step.
func (n *Node) stepCost(size int) float64 {
	if n.Profile == nil {
		return float64(size)
	}
	return n.Profile.Seconds(float64(size)) / n.Profile.PerSample()
}

// within is the largest share up to most whose cost is at most w; most must be a share.
func (n *Node) within(w float64, most int) int {
	if n.Profile == nil {
		if w >= float64(most) {
			return most
		}
		return n.floorShare(int(max(w, 0)))
	}
	full := n.Full()
	if full < 1 || !(w > 0) {
		return 0
	}
	if n.Equal > 0 {
		return n.equalWithin(w, most)
	}
	whole := 0
	if cost := n.stepCost(full); full < most && w >= cost {
		k := math.Floor(w / cost)
		if k*float64(full) >= float64(most) {
			return most
		}
		whole = int(k) * full
		w -= k * cost
	}
	return min(whole+n.stepWithin(w, most), most)
}

// equalWithin is within for equal micro-steps.
func (n *Node) equalWithin(w float64, most int) int {
	steps := float64(n.Equal)
	size := n.stepWithin(w/steps, most/n.Equal)
	least := n.stepCost(size)
	more := min((w-steps*least)/(n.stepCost(size+1)-least), steps) // of the steps have a sample above size
	if size < 1 || !(more > 0) {
		return size * n.Equal
	}
	return n.floorShare(min(size*n.Equal+int(more), most))
}

// stepWithin is the largest micro-batch up to most whose cost is at most w.
func (n *Node) stepWithin(w float64, most int) int {
	b := w
	if n.Profile != nil {
		b = n.Profile.Samples(w * n.Profile.PerSample())
	}
	if b >= float64(most) {
		return n.floorStep(most)
	}
	return n.floorStep(int(b))
}

// divisor is the greatest common divisor of the shares that the node takes and of d.
func (n *Node) divisor(d int) int {
	gcd := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	full, steps := n.Full(), max(n.Equal, 1)
	if len(n.Shapes) == 0 {
		if full > n.LeastStep() {
			return 1
		}
		return gcd(full*steps, d)
	}
	for _, s := range n.Shapes {
		if s <= full {
			d = gcd(s*steps, d)
		}
		if n.Equal > 0 && n.floorStep(s+1) > s {
			return 1 // shares of a sample more
		}
	}
	return d
}
