package bucket

import "sort"

// cutRest makes one step of the first rest positions, too few for a whole one: every slot
// takes what it finishes within a duration, the smallest with which all are taken.
func (p *Plan) cutRest(o *order, rest int, all []slot) []Batch {
	low, high := 0.0, p.cost.Seconds(p.limit, p.cost.Cap(p.limit))
	var best []Batch
	for i := 0; i < 200 && (best == nil || i < 40); i++ {
		middle := (low + high) / 2
		if best == nil {
			middle = high
		}
		if b, left := p.within(o, rest, all, middle); left == 0 {
			best, high = b, middle
		} else if low = middle; best == nil {
			high *= 2
		}
	}
	return best
}

// within cuts from the longest down, each slot's batch within its share of the duration
// and within memory, and returns how many positions are left.
func (p *Plan) within(o *order, rest int, all []slot, duration float64) (out []Batch, left int) {
	l := sort.Search(p.limit, func(k int) bool { return o.start[k+1] >= rest })
	for _, s := range all {
		if rest == 0 {
			break
		}
		for o.start[l] >= rest {
			l--
		}
		n := sort.Search(p.cost.Cap(l), func(b int) bool { return p.cost.Seconds(l, b+1) > duration*s.share*(1+1e-9) })
		n = min(max(n, 1), rest)
		rest -= n
		out = append(out, Batch{uint32(rest), uint32(n), uint32(s.rank)})
	}
	return out, rest
}
