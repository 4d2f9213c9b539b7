package even

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	beam    = 12  // beginnings that are kept
	padding = 1.1 // what padding adds to the work that is left
)

// cutter cuts padded samples in order of their cost.
type cutter struct {
	*batch
	c, s  []float64 // costs in order, and the largest size from there on
	quick []int     // ranks, the fastest first
}

// piece is a cut of samples up to a place: its seconds, and how many each bin has.
type piece struct {
	seconds float64
	to      int
	counts  []int
}

// cut cuts the samples from the costliest down, within a slot the fastest rank first: so that each slot lasts as long in all ranks, and so that all bins last
// equally long, also with the slow ranks after all others. The first is a beam search: a slot may last more or less than an even share of what is left, and those beginnings are kept that leave
// the least.
func (b *batch) cut() (out [][][]int) {
	n, speed := len(b.order), sum(b.v)
	u := &cutter{batch: b, c: make([]float64, n), s: make([]float64, n), quick: make([]int, b.ranks)}
	work := make([]float64, n+1)
	for at := n - 1; at >= 0; at-- {
		u.c[at], u.s[at] = b.c[b.order[at]], b.s[b.order[at]]
		if work[at] = work[at+1] + u.c[at]; at+1 < n {
			u.s[at] = max(u.s[at], u.s[at+1])
		}
	}
	for r := range u.quick {
		u.quick[r] = r
	}
	slices.SortStableFunc(u.quick, func(p, q int) int { return cmp.Compare(b.v[q], b.v[p]) })
	ways := [][]int{slices.Repeat(u.quick, b.steps)}
	if slices.Min(b.v) < slices.Max(b.v) {
		slow := slices.Clone(ways[0])
		slices.SortStableFunc(slow, func(p, q int) int { return slices.Index(u.quick, p) - slices.Index(u.quick, q) })
		ways = append(ways, slow)
	}
	begun := []piece{{}}
	for left := b.steps; left > 0; left-- {
		found := map[int]piece{}
		for _, p := range begun {
			add := func(next piece, ok bool) {
				took := p.seconds + next.seconds
				if before, is := found[next.to]; ok && (!is || took < before.seconds) {
					found[next.to] = piece{took, next.to, slices.Concat(p.counts, next.counts)}
				}
			}
			if left == 1 {
				add(u.all(p.to, u.quick))
				continue
			}
			even, alone := (work[p.to]+float64(b.Fixed*float64(b.ranks*left)))/(speed*float64(left)), 0.0
			if p.to < n {
				alone = (b.Fixed + u.c[p.to]) / b.v[u.quick[0]]
			}
			for d := -8; d <= 16; d++ {
				add(u.take(p.to, max(alone, even*(1+float64(d)/32)), u.quick, left*b.ranks), true)
			}
		}
		estimate := func(p piece) float64 { return p.seconds + float64(padding*work[p.to])/speed }
		begun = slices.SortedFunc(maps.Values(found), func(p, q piece) int { return cmp.Or(cmp.Compare(estimate(p), estimate(q)), p.to-q.to) })
		begun = begun[:min(len(begun), beam)]
	}
	for _, p := range begun {
		if p.to == n {
			out = append(out, u.bins(p.counts, ways[0], false))
			break
		}
	}
	for _, ranks := range ways {
		if p, ok := u.all(0, ranks); ok {
			out = append(out, u.bins(p.counts, ranks, true))
		}
	}
	return out
}

// take cuts a bin of each rank, of up to a duration, from a place on; so many bins are left to fill.
func (u *cutter) take(at int, duration float64, ranks []int, bins int) piece {
	p := piece{counts: make([]int, len(ranks))}
	n := len(u.c)
	for i, r := range ranks {
		if at == n {
			break
		}
		count, room := n, max(0, float64(u.v[r]*duration)-u.Fixed)
		if u.c[at]*float64(n) > room {
			count = int(math.Floor(room/u.c[at] + rounding))
		}
		count = max(1, min(count, n-at-(bins-i-1))) // the others get one at least
		if u.s[at]*float64(count) > u.m[r] {
			count = int(math.Floor(u.m[r]/u.s[at] + rounding))
		}
		if count > 0 {
			p.seconds = max(p.seconds, (u.Fixed+float64(float64(count)*u.c[at]))/u.v[r])
		}
		p.counts[i], at = count, at+count
	}
	p.to = at
	return p
}

// all cuts by the shortest duration that leaves no sample; false: there is none.
func (u *cutter) all(at int, ranks []int) (piece, bool) {
	n := len(u.c)
	if at == n {
		return piece{to: at, counts: make([]int, len(ranks))}, true
	}
	best := u.take(at, math.Inf(1), ranks, len(ranks))
	if best.to < n {
		return best, false
	}
	low, high := 0.0, (u.Fixed+float64(u.c[at]*float64(n-at)))/slices.Min(u.v)
	for range 30 {
		middle := (low + high) / 2
		if found := u.take(at, middle, ranks, len(ranks)); found.to < n {
			low = middle
		} else {
			high, best = middle, found
		}
	}
	return best, true
}

// bins are those of a cut for these ranks. sort: among ranks alike, those that last longest share a slot.
func (u *cutter) bins(counts, ranks []int, sort bool) [][]int {
	type bin struct {
		like, at int // the first rank alike
		cost     float64
		samples  []int
	}
	bins, out, at, rows := make([]bin, len(counts)), make([][]int, len(counts)), 0, make([]int, u.ranks)
	for k, count := range counts {
		r := ranks[k]
		like := slices.IndexFunc(u.quick, func(q int) bool { return u.v[q] == u.v[r] && u.m[q] == u.m[r] })
		bins[k] = bin{like: like, at: rows[r]*u.ranks + r, samples: slices.Clone(u.order[at : at+count])}
		rows[r]++
		if count > 0 && sort {
			bins[k].cost = u.c[at] * float64(count)
		}
		at += count
	}
	slices.SortFunc(bins, func(p, q bin) int { return cmp.Or(p.like-q.like, p.at-q.at) })
	places := slices.Clone(bins)
	slices.SortStableFunc(bins, func(p, q bin) int { return cmp.Or(p.like-q.like, cmp.Compare(q.cost, p.cost)) })
	for k, b := range bins {
		out[places[k].at] = b.samples
	}
	return out
}
