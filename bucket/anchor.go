package bucket

import (
	"math"
	"slices"
	"sort"
)

// Bucket is a range of lengths that share a batch size.
type Bucket struct {
	Upper   int     `json:"upper"`   // longest length, padded to; the shortest is the one before's plus 1
	Samples int     `json:"samples"` // in the data set
	Batch   int     `json:"batch"`   // samples per batch on the fastest rank
	Seconds float64 `json:"seconds"` // predicted of such a batch there
}

// point is one recorded batch size with its duration.
type point struct {
	batch   int
	seconds float64
}

// points are the batch sizes tried for a length: all below 16, then an eighth apart,
// and the cap; by duration, then batch.
func points(c Cost, length int) []point {
	top := c.Cap(length)
	var out []point
	for b := 1; b <= top; {
		out = append(out, point{b, c.Seconds(length, b)})
		if next := max(b+1, b+b/8); b < top && next > top {
			b = top
		} else {
			b = next
		}
	}
	slices.SortStableFunc(out, func(x, y point) int {
		if x.seconds != y.seconds {
			if x.seconds < y.seconds {
				return -1
			}
			return 1
		}
		return x.batch - y.batch
	})
	return out
}

// anchor is the outcome of a search.
type anchor struct {
	T       float64 // the anchor duration, seconds
	byT     float64 // epoch time with every step lasting T
	seconds float64 // epoch time with the recorded durations
	pick    []point // per bucket
}

// searchAnchor is the anchor search (Huawei, training method for sequence models) over
// every recorded duration that leaves each bucket a batch. A bucket takes the point with
// the longest duration up to T, among equals the largest batch. Same: all ranks of a
// step take the same bucket; else a step mixes them and lasts as long as its longest,
// predicted as the mean over steps of equally likely batches.
//
// Departures: the patent moves T until the epoch time meets a condition; between two
// recorded durations nothing changes, so here all of them are tried, the exact minimum.
// The epoch time by T alone is an upper bound, so that by durations decides.
func searchAnchor(counts []int, pts [][]point, ranks int, same bool) (best anchor, ok bool) {
	type event struct {
		t         float64
		bucket, k int
	}
	var events []event
	floor := 0.0
	for b, p := range pts {
		if len(p) == 0 {
			return best, false
		}
		floor = max(floor, p[0].seconds)
		for k, q := range p {
			events = append(events, event{q.seconds, b, k})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		switch {
		case a.t < b.t:
			return -1
		case a.t > b.t:
			return 1
		case a.bucket != b.bucket:
			return a.bucket - b.bucket
		}
		return a.k - b.k
	})
	at := make([]int, len(pts))
	for b := range at {
		at[b] = -1
	}
	batches, sum := 0, 0.0
	best.seconds = math.Inf(1)
	keep := make([]int, len(pts))
	per := func(b int) (int, float64) {
		if at[b] < 0 || counts[b] == 0 {
			return 0, 0
		}
		q := pts[b][at[b]]
		size := q.batch
		if same {
			size *= ranks
		}
		n := (counts[b] + size - 1) / size
		return n, float64(n) * q.seconds
	}
	for i, e := range events {
		n, s := per(e.bucket)
		batches, sum = batches-n, sum-s
		at[e.bucket] = e.k
		n, s = per(e.bucket)
		batches, sum = batches+n, sum+s
		if e.t < floor || i+1 < len(events) && events[i+1].t == e.t {
			continue
		}
		a := anchor{T: e.t}
		if same {
			a.byT, a.seconds = float64(batches)*e.t, sum
		} else {
			steps := (batches + ranks - 1) / ranks
			a.byT = float64(steps) * e.t
			if sum/float64(ranks) >= best.seconds {
				continue // the mean over ranks is no more than the longest
			}
			a.seconds = float64(steps) * mixedStep(counts, pts, at, batches, ranks)
		}
		if a.seconds < best.seconds {
			best = a
			copy(keep, at)
		}
	}
	for b, k := range keep {
		best.pick = append(best.pick, pts[b][k])
	}
	return best, true
}

// mixedStep is the expected longest of ranks batches drawn from all.
func mixedStep(counts []int, pts [][]point, at []int, batches, ranks int) float64 {
	type share struct{ seconds, weight float64 }
	var all []share
	for b, k := range at {
		q := pts[b][k]
		if counts[b] > 0 {
			all = append(all, share{q.seconds, float64((counts[b] + q.batch - 1) / q.batch)})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].seconds < all[j].seconds })
	mean, below, before := 0.0, 0.0, 0.0
	for _, s := range all {
		below += s.weight / float64(batches)
		now := math.Pow(min(below, 1), float64(ranks))
		mean += s.seconds * (now - before)
		before = now
	}
	return mean
}
