package paired

import (
	"math"
	"slices"

	"evenkeel/bucket/internal/partition"
)

// fine is the number of cells of a full batch of equal samples. Batches consist of whole cells.
const fine = 64

// cutRow cuts a row of samples into batches that take the least time in all, by dynamic programming over the ends of batches. room is
// the largest batch of a shape, at least 1, and never rises with a length; seconds is the time of a batch. It returns the ends.
func cutRow(row []shape, room func(shape) int, seconds func(shape, int) float64) (ends []int) {
	cells, longest := divide(row, room)
	least := make([]float64, len(cells)) // of what lies before the end of each cell
	from := make([]int, len(cells))
	for k := 1; k < len(cells); k++ {
		least[k] = math.Inf(1)
		s, top := shape{}, 0
		for j := k; j > 0; j-- {
			c := longest[j]
			if c.Source > s.Source || c.Target > s.Target {
				s = shape{max(s.Source, c.Source), max(s.Target, c.Target)}
				top = room(s)
			}
			n := cells[k] - cells[j-1]
			if n > top {
				break
			}
			if t := least[j-1] + seconds(s, n); t < least[k] {
				least[k], from[k] = t, j-1
			}
		}
	}
	for k := len(cells) - 1; k > 0; k = from[k] {
		ends = append(ends, cells[k])
	}
	slices.Reverse(ends)
	return ends
}

// divide returns the ends of cells, beginning with 0, and the longest source and target in each. A cell is a small part of a batch, or
// one sample.
func divide(row []shape, room func(shape) int) (ends []int, longest []shape) {
	ends, longest = []int{0}, []shape{{}}
	for at := 0; at < len(row); {
		n := min(max(1, room(row[at])/fine), len(row)-at)
		var s shape
		for _, x := range row[at : at+n] {
			s = shape{max(s.Source, x.Source), max(s.Target, x.Target)}
		}
		if n > room(s) { // some samples are much longer
			n, s = 1, row[at]
		}
		at += n
		ends, longest = append(ends, at), append(longest, s)
	}
	return ends, longest
}

// cutFreely cuts the order, up to an end, into batches that take the least time in all, the longest first. Steps then consist of batches
// of similar duration: over the whole epoch, ranks wait less than the longest batch takes.
func (r *row) cutFreely(end, places int) []partition.Cut {
	two := r.cost
	length := func(s shape) int { return s.Source<<sideBits | s.Target }
	piece := func(at, end int) partition.Cut {
		pad := length(r.sides[at])
		for _, s := range r.sides[at:end] {
			pad = two.join(pad, length(s))
		}
		return partition.Cut{Start: uint32(at), Count: uint32(end - at), Longest: pad, Seconds: two.Seconds(pad, end-at)}
	}
	var cuts []partition.Cut
	at := 0
	for _, end := range cutRow(r.sides[:end], func(s shape) int { return max(1, two.Cap(length(s))) }, func(s shape, n int) float64 { return two.Seconds(length(s), n) }) {
		cuts = append(cuts, piece(at, end))
		at = end
	}
	partition.SortCuts(cuts)
	for i := range min(len(cuts), (places-len(cuts)%places)%places) { // the longest are halved until no place is idle in the last step
		if start, n := int(cuts[i].Start), int(cuts[i].Count); n > 1 {
			half := n / 2
			if m := two.limits.Multiple; half >= m {
				half -= half % m
			}
			cuts[i] = piece(start, start+half)
			cuts = append(cuts, piece(start+half, start+n))
		}
	}
	return cuts
}
