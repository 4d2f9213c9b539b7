package stepcost

import "math"

// smooth makes seconds rise with batch and with length: the pool-adjacent-violators rule
// (Ayer et al., An empirical distribution function for sampling with incomplete
// information, 1955) over batch and over length in turn, on logarithms since noise is
// relative, until both hold to 1 part in 10^6, then a running maximum for the rest.
func smooth(series [][]Trial) {
	byBatch := map[int][][2]int{}
	for i, s := range series {
		for k, r := range s {
			byBatch[r.Batch] = append(byBatch[r.Batch], [2]int{i, k})
		}
	}
	for range 20 {
		moved := 0.0
		for _, s := range series {
			y := make([]float64, len(s))
			for k := range s {
				y[k] = math.Log(s[k].Seconds)
			}
			for k, v := range isotonic(y) {
				moved = max(moved, math.Abs(v-y[k]))
				s[k].Seconds = math.Exp(v)
			}
		}
		for _, cells := range byBatch {
			y := make([]float64, len(cells))
			for k, at := range cells {
				y[k] = math.Log(series[at[0]][at[1]].Seconds)
			}
			for k, v := range isotonic(y) {
				moved = max(moved, math.Abs(v-y[k]))
				series[cells[k][0]][cells[k][1]].Seconds = math.Exp(v)
			}
		}
		if moved < 1e-6 {
			break
		}
	}
	for _, s := range series {
		for k := 1; k < len(s); k++ {
			s[k].Seconds = max(s[k].Seconds, s[k-1].Seconds)
		}
	}
}

// isotonic is the non-decreasing sequence nearest to y in the sum of squares.
func isotonic(y []float64) []float64 {
	type block struct {
		sum float64
		n   int
	}
	var blocks []block
	for _, v := range y {
		b := block{v, 1}
		for n := len(blocks); n > 0 && blocks[n-1].sum/float64(blocks[n-1].n) >= b.sum/float64(b.n); n-- {
			b = block{b.sum + blocks[n-1].sum, b.n + blocks[n-1].n}
			blocks = blocks[:n-1]
		}
		blocks = append(blocks, b)
	}
	out := make([]float64, 0, len(y))
	for _, b := range blocks {
		for range b.n {
			out = append(out, b.sum/float64(b.n))
		}
	}
	return out
}
