package bucket

import "sort"

// groups are the lengths shuffled together: each its own (sorted) or by bucket. Overlong
// lengths come last, or with the limit's.
func (p *Plan) groups(n int) []uint32 {
	g := make([]uint32, n)
	for l := range g {
		switch {
		case l > p.limit && p.Overlong == Truncate:
			g[l] = g[p.limit]
		case p.Mode == Sorted:
			g[l] = uint32(min(l, p.limit+1))
		case l > p.limit:
			g[l] = uint32(len(p.Buckets))
		default:
			g[l] = uint32(sort.Search(len(p.Buckets), func(k int) bool { return p.Buckets[k].Upper >= l }))
		}
	}
	return g
}

func (p *Plan) cut(o *order, seed, epoch uint64) ([]uint32, []Batch) {
	if p.Mode == Sorted {
		return p.cutSorted(o, seed, epoch)
	}
	return p.cutAnchor(o, seed, epoch, p.Mode == Same)
}

// predict scores the epoch 0 of seed 0 by the histogram alone: in a bucket every batch
// is taken as padded to the bucket's length.
func (p *Plan) predict() Score {
	group := p.groups(len(p.hist))
	o := newOrder(p.hist, group, 0, 0)
	steps, batches := p.cut(o, 0, 0)
	s := newScorer(p.cost, p.Speeds)
	sum := make([]int, len(p.hist)+1) // of lengths, before each
	at := make([]int, len(p.hist)+1)  // positions before each length
	for l, c := range p.hist {
		sum[l+1] = sum[l] + l*int(c)
		at[l+1] = at[l] + int(c)
	}
	before := func(pos int) int {
		l := sort.SearchInts(at, pos)
		if l == 0 {
			return 0
		}
		return sum[l-1] + (pos-at[l-1])*(l-1)
	}
	for i := range len(steps) - 1 {
		for _, b := range batches[steps[i]:steps[i+1]] {
			end := int(b.Start + b.Count)
			var longest int
			if p.Mode == Sorted {
				longest = sort.SearchInts(at, end) - 1
			} else {
				longest = p.Buckets[sort.SearchInts(o.start, end)-1].Upper
			}
			s.batch(int(b.Rank), longest, int(b.Count), before(end)-before(int(b.Start)))
		}
		s.step()
	}
	score := s.score()
	score.Skipped = p.Skipped
	return score
}

// Schedule cuts an epoch of the lengths that the plan was made for.
func (p *Plan) Schedule(l Lengths, seed, epoch uint64) *Schedule {
	var longest uint32
	for _, v := range l {
		longest = max(longest, v)
	}
	full := l.histogram()
	group := p.groups(int(longest) + 1)
	o := newOrder(full, group, seed, epoch)
	if p.Mode == Sorted && len(o.start) < p.limit+2 {
		o.start = append(o.start, len(l))
	}
	s := &Schedule{Ranks: p.Ranks, Skipped: p.Skipped, lengths: l, limit: p.limit, order: o}
	s.Steps, s.Batches = p.cut(o, seed, epoch)
	return s
}
