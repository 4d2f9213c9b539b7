package main

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"evenkeel/bucket"
)

// peer is another system's rule of batching, written from its published description. cut gives an epoch's steps; tokens is the limit
// that a rule may need.
type peer struct {
	name string
	cut  func(l bucket.Lengths, tokens int, r *rand.Rand) [][]bucket.RankBatch
}

// peers are fairseq's rule with its grouped shuffling, and without, when it loses nothing; compare.py has other systems.
func peers() []peer {
	return []peer{
		{groupedRule, grouped},
		{"fairseq, all steps kept", func(l bucket.Lengths, tokens int, _ *rand.Rand) [][]bucket.RankBatch {
			return dealt(byTokens(l, sorted(l), tokens), ranks, false)
		}},
	}
}

// grouped shuffles whole groups of a batch per rank, cut from sorted batches, and drops the
// last batches, the longest, that fill no group (fairseq, EpochBatchIterator with
// grouped_shuffling).
func grouped(l bucket.Lengths, tokens int, r *rand.Rand) [][]bucket.RankBatch {
	s := dealt(byTokens(l, sorted(l), tokens), ranks, true)
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// safeTokens is the largest number of padded tokens that fits at every length that occurs:
// the best token limit there is. It is above the tokens of the largest batch of the longest
// samples, which is what a user finds who tries the longest, since a batch is a whole number.
func safeTokens(l bucket.Lengths, c bucket.Cost) int {
	least := bucket.MaxLength * 64
	for n, k := range l.Histogram() {
		if k > 0 {
			least = min(least, (c.Cap(n)+1)*n-1)
		}
	}
	return least
}

// sorted are the samples from the shortest on, those of one length in the data set's order.
func sorted(l bucket.Lengths) []uint32 {
	out := make([]uint32, len(l))
	for i := range out {
		out[i] = uint32(i)
	}
	slices.SortStableFunc(out, func(a, b uint32) int { return cmp.Compare(l[a], l[b]) })
	return out
}

// byTokens adds samples while count x longest stays within the tokens (fairseq, data_utils_fast.batch_by_size_vec with a required multiple of 1).
func byTokens(l bucket.Lengths, order []uint32, tokens int) [][]uint32 {
	var out [][]uint32
	for at := 0; at < len(order); {
		longest, n := 0, 0
		for at+n < len(order) {
			longest = max(longest, int(l[order[at+n]]))
			if n > 0 && (n+1)*longest > tokens {
				break
			}
			n++
		}
		out = append(out, order[at:at+n])
		at += n
	}
	return out
}

// dealt gives batches to the ranks in turn; an incomplete last step is dropped or kept.
func dealt(batches [][]uint32, ranks int, drop bool) (steps [][]bucket.RankBatch) {
	for step := range slices.Chunk(batches, ranks) {
		if drop && len(step) < ranks {
			break
		}
		steps = append(steps, nil)
		for rank, b := range step {
			steps[len(steps)-1] = append(steps[len(steps)-1], bucket.RankBatch{Rank: rank, Samples: b})
		}
	}
	return steps
}
