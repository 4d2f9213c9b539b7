package ordering

import "math"

// fine is into how many cells a batch of one sample's lengths is divided: it can end at any of their ends.
const fine = 64

// Cut cuts a row of samples into batches that take the least time in all, by dynamic programming over where a batch ends: exact among those
// of whole cells. room is the largest batch of a shape, at least 1, and no larger for longer ones; seconds what a batch takes. It returns where the
// batches end.
func Cut(row []Shape, room func(Shape) int, seconds func(Shape, int) float64) (ends []int) {
	cells, longest := divide(row, room)
	least := make([]float64, len(cells)) // of what lies before the end of each cell
	from := make([]int, len(cells))
	for k := 1; k < len(cells); k++ {
		least[k] = math.Inf(1)
		s, top := Shape{}, 0
		for j := k; j > 0; j-- {
			c := longest[j]
			if c.Source > s.Source || c.Target > s.Target {
				s = Shape{max(s.Source, c.Source), max(s.Target, c.Target)}
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
	for i, j := 0, len(ends)-1; i < j; i, j = i+1, j-1 {
		ends[i], ends[j] = ends[j], ends[i]
	}
	return ends
}

// divide is where cells end, the first at 0, and the longest of both in each. A cell is a small part of a batch, or one sample.
func divide(row []Shape, room func(Shape) int) (ends []int, longest []Shape) {
	ends, longest = []int{0}, []Shape{{}}
	for at := 0; at < len(row); {
		n := min(max(1, room(row[at])/fine), len(row)-at)
		var s Shape
		for _, x := range row[at : at+n] {
			s = Shape{max(s.Source, x.Source), max(s.Target, x.Target)}
		}
		if n > room(s) { // much longer ones are among them
			n, s = 1, row[at]
		}
		at += n
		ends, longest = append(ends, at), append(longest, s)
	}
	return ends, longest
}
