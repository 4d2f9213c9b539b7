package stepcost

import (
	"maps"
	"math"
	"slices"
)

// smooth makes seconds rise with batch and with length: the pool-adjacent-violators rule
// (Ayer et al., An empirical distribution function for sampling with incomplete
// information, 1955) over batch and over length in turn, on logarithms since noise is
// relative, until both hold to 1 part in 10^6, then a running maximum for the rest.
func smooth(series [][]Trial) {
	var runs [][]*Trial // over batch, then over length
	byBatch := map[int][]*Trial{}
	for _, s := range series {
		var run []*Trial
		for k := range s {
			run = append(run, &s[k])
			byBatch[s[k].Batch] = append(byBatch[s[k].Batch], &s[k])
		}
		runs = append(runs, run)
	}
	runs = slices.AppendSeq(runs, maps.Values(byBatch))
	for range 20 {
		moved := 0.0
		for _, run := range runs {
			y := make([]float64, len(run))
			for k, r := range run {
				y[k] = math.Log(r.Seconds)
			}
			for k, v := range isotonic(y) {
				moved = max(moved, math.Abs(v-y[k]))
				run[k].Seconds = math.Exp(v)
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
