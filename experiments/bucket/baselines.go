package main

import (
	"math/rand/v2"
	"slices"

	"github.com/evenkeel/evenkeel/bucket"
)

// rule is a peer's: batches of sample positions, grouped into steps of one batch a rank.
type rule struct {
	name string
	make func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32
}

// sorted is the samples by length, random among equals.
func sorted(l bucket.Lengths, r *rand.Rand) []uint32 {
	out := make([]uint32, len(l))
	for i, k := range r.Perm(len(l)) {
		out[i] = uint32(k)
	}
	slices.SortStableFunc(out, func(a, b uint32) int { return int(l[a]) - int(l[b]) })
	return out
}

// cut makes batches in the given order; a batch ends before full says that it would be.
func cut(l bucket.Lengths, order []uint32, full func(longest, count int) bool) [][]uint32 {
	var out [][]uint32
	start, longest := 0, 0
	for i, s := range order {
		longest = max(longest, int(l[s]))
		if i > start && full(longest, i-start+1) {
			out = append(out, order[start:i])
			start, longest = i, int(l[s])
		}
	}
	return append(out, order[start:])
}

func steps(batches [][]uint32, ranks int) (out [][][]uint32) {
	for i := 0; i < len(batches); i += ranks {
		out = append(out, batches[i:min(i+ranks, len(batches))])
	}
	return out
}

// fits is the memory test of every token-budget rule here: fairseq's own budget is in
// tokens; the largest that never runs out of memory at any length is used, or, where it
// says memory, the cost's cap itself.
func fits(c bucket.Cost) func(longest, count int) bool {
	return func(longest, count int) bool { return count > c.Cap(longest) }
}

func tokens(l bucket.Lengths, c bucket.Cost) func(longest, count int) bool {
	top := int(slices.Max(l))
	budget := top * c.Cap(top)
	return func(longest, count int) bool { return longest*count > budget }
}

func shuffle(r *rand.Rand, b [][]uint32) [][]uint32 {
	r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	return b
}

// buckets draws batches of random samples within 30 buckets of equal token counts; a
// step takes one bucket.
func buckets(l bucket.Lengths, r *rand.Rand, ranks int, size func(upper int) int) (out [][][]uint32) {
	order, total := sorted(l, r), 0
	for _, v := range l {
		total += int(v)
	}
	sum, start := 0, 0
	for i, s := range order {
		sum += int(l[s])
		if i+1 < len(order) && (sum < total/30 || l[s] == l[order[i+1]]) {
			continue
		}
		part := order[start : i+1]
		r.Shuffle(len(part), func(a, b int) { part[a], part[b] = part[b], part[a] })
		n := max(1, size(int(l[s])))
		out = append(out, steps(cut(l, part, func(_, count int) bool { return count > n }), ranks)...)
		start, sum = i+1, 0
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

var rules = []rule{
	// facebookresearch/fairseq: sort, cut by budget, shuffle the batches, deal in turn.
	{"fairseq, default", func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32 {
		return steps(shuffle(r, cut(l, sorted(l, r), fits(c))), ranks)
	}},
	// fairseq --grouped-shuffling: groups of W batches are shuffled, not batches.
	{"fairseq, grouped", func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32 {
		s := steps(cut(l, sorted(l, r), fits(c)), ranks)
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		return s
	}},
	{"fixed max-tokens", func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32 {
		return steps(shuffle(r, cut(l, sorted(l, r), tokens(l, c))), ranks)
	}},
	// lhotse's DynamicBucketingSampler in its manner: equal-token buckets, one bucket a
	// step on all ranks, a token budget that fits the longest.
	{"lhotse-like buckets", func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32 {
		top := int(slices.Max(l))
		return buckets(l, r, ranks, func(upper int) int { return top * c.Cap(top) / upper })
	}},
	// NeMo's OOMptimizer in its manner: the same with each bucket's own memory cap.
	{"OOMptimizer-like", func(l bucket.Lengths, c bucket.Cost, ranks int, r *rand.Rand) [][][]uint32 {
		return buckets(l, r, ranks, c.Cap)
	}},
}
