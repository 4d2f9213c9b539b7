package even

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/internal/badinput"
)

// cuts are the samples that are cut over several ranks (context parallelism; Liu et al., Ring Attention, 2023; sample by sample as in Megatron-LM's hybrid
// context parallelism, which takes as many ranks as the memory needs; here more where that shortens the batch).
type cuts struct {
	wide    []int     // over how many ranks each sample is cut
	longest float64   // seconds of the longest part of one
	sample  []int     // which is cut into each bin, or none
	held    []float64 // seconds of each bin with one
	busy    []float64 // the seconds that each rank has for them
	count   []int     // how many bins
}

func (b *batch) pinned(bin int) bool { return b.sample[bin] != none }

// lasts is how long g ranks take for their parts of a sample, the first of them given; infinite if one lacks the memory.
func (b *batch) lasts(i, g, first int) float64 {
	size, cost := b.s[i]/float64(g), b.c[i]/float64(g)
	if g > 1 {
		cost += float64(b.Exchange[i] * (1 - 1/float64(g)))
	}
	if size > slices.Min(b.m[first:first+g]) {
		return math.Inf(1)
	}
	return (b.Fixed + cost) / slices.Min(b.v[first:first+g])
}

// least is the shortest of these, over all groups.
func (b *batch) least(i, g int) float64 {
	t := math.Inf(1)
	for first := 0; first+g <= b.ranks; first += g {
		t = min(t, b.lasts(i, g, first))
	}
	return t
}

// widen cuts samples over twice as many ranks while no group holds them, or while they last longer than the limit and that shortens them. false: none is
// cut further.
func (b *batch) widen(limit float64) (changed bool, err error) {
	b.order, b.longest = nil, 0
	for i := range b.c {
		t := b.least(i, b.wide[i])
		for b.Exchange != nil && 2*b.wide[i] <= b.ranks && t > min(limit, math.MaxFloat64) {
			next := b.least(i, 2*b.wide[i])
			if next >= t && !math.IsInf(t, 1) {
				break
			}
			t, changed, b.wide[i] = next, true, 2*b.wide[i]
		}
		if math.IsInf(t, 1) {
			where := map[bool]string{true: "", false: " of each of so many ranks"}[b.wide[i] == 1]
			return false, badinput.Errorf("sizes: sample %d takes %g, and a micro-batch%s holds %g: leave it out, cut it, or raise memory", i, b.s[i]/float64(b.wide[i]), where, slices.Max(b.m))
		}
		if b.longest = max(b.longest, t); b.wide[i] == 1 {
			b.order = append(b.order, i)
		}
	}
	slices.SortFunc(b.order, func(i, j int) int { return cmp.Or(cmp.Compare(b.c[j], b.c[i]), cmp.Compare(b.s[j], b.s[i]), i-j) })
	return changed, nil
}

// pin gives the samples that are cut bins of their own; false: there are too few. Ranks that wait for one another after each slot get samples that last alike
// in one slot; with Free the widest come first, so that all ranks of a sample come to it at once, where they are done first.
func (b *batch) pin() bool {
	b.sample, b.held = slices.Repeat([]int{none}, b.ranks*b.steps), make([]float64, b.ranks*b.steps)
	b.busy, b.count = make([]float64, b.ranks), make([]int, b.ranks)
	var cut []int
	for i, g := range b.wide {
		if g > 1 {
			cut = append(cut, i)
		}
	}
	slices.SortFunc(cut, func(i, j int) int {
		wider := 0
		if b.Free {
			wider = b.wide[j] - b.wide[i]
		}
		return cmp.Or(wider, cmp.Compare(b.least(j, b.wide[j]), b.least(i, b.wide[i])), i-j)
	})
	for _, i := range cut {
		row, at, lasts, g, best := -1, 0, 0.0, b.wide[i], math.Inf(1)
		for first := 0; first+g <= b.ranks; first += g {
			t := b.lasts(i, g, first)
			for k := range b.steps {
				slot := b.held[k*b.ranks : (k+1)*b.ranks]
				if slices.Max(b.sample[k*b.ranks+first:k*b.ranks+first+g]) != none {
					continue
				}
				more := max(0, t-slices.Max(slot)) // that the slot lasts
				if b.Free {
					more = b.busy[first] + t
				}
				if more < best || more == best && t < lasts {
					row, at, lasts, best = k, first, t, more
				}
			}
		}
		if row < 0 {
			return false
		}
		for r := at; r < at+g; r++ {
			b.sample[row*b.ranks+r], b.held[row*b.ranks+r] = i, lasts
			b.busy[r], b.count[r] = b.busy[r]+lasts, b.count[r]+1
		}
	}
	return true
}
