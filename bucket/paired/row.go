package paired

import (
	"sort"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/partition"
)

// row is the samples of an epoch in their order.
type row struct {
	cost  *cost
	kinds bucket.Lengths
	index []uint32
	sides []shape // by position
}

// Next implements partition.Row: the kind of the sample.
func (r *row) Next(pos int) int { return int(r.kinds[r.index[pos-1]]) }

// Take implements partition.Row. As the batch grows, so do its longest source and target.
func (r *row) Take(pos, _ int, most float64, size func(length int) int) (n, pad int) {
	room := func(s shape) int { // samples of a batch padded to these lengths
		pad := s.Source<<sideBits | s.Target
		top := size(pad)
		if r.cost.Seconds(pad, top) > most {
			top = sort.Search(top, func(b int) bool { return r.cost.Seconds(pad, b+1) > most })
		}
		return top
	}
	longest := r.sides[pos-1]
	n, top := 1, room(longest)
	for ; n < pos; n++ {
		s := r.sides[pos-n-1]
		if s.Source > longest.Source || s.Target > longest.Target {
			s.Source, s.Target = max(s.Source, longest.Source), max(s.Target, longest.Target)
			if more := room(s); n < more {
				longest, top = s, more
				continue
			}
			break
		}
		if n >= top {
			break
		}
	}
	return partition.Whole(n, n, r.cost.limits.Multiple), longest.Source<<sideBits | longest.Target
}
