// Package peers holds other systems' rules of batching by length, written from their published descriptions as
// baselines: bucket.Judge scores them all alike.
//
// A Peer's Cut gives the steps of an epoch, which bucket.Listed hands to bucket.Judge; see the Example.
package peers

import (
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/plain"
)

// Peer is another system's rule of batching.
type Peer struct {
	Name string
	// Cut gives an epoch's steps. Tokens is the token limit a rule may need: SafeTokens,
	// or less.
	Cut func(l bucket.Lengths, c bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch
}

// All are the rules of fairseq (with its grouped shuffling and without), lhotse, NeMo's
// OOMptimizer on lhotse, transformers' group_by_length, and plain limits on tokens.
func All() []Peer {
	return []Peer{
		{"fairseq, default", func(l bucket.Lengths, c bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch {
			b := byTokens(l, sorted(l), tokens, 8)
			r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
			return deal(b, ranks, false)
		}},
		{"fairseq, grouped, multiple 1", grouped},
		{"fairseq, grouped, tokens of the longest", func(l bucket.Lengths, c bucket.Cost, ranks, _ int, r *rand.Rand) [][]bucket.RankBatch {
			longest := int(slices.Max(l))
			return grouped(l, c, ranks, c.Cap(longest)*longest, r)
		}},
		// Not fairseq's rule, but the fair comparison: it loses nothing.
		{"fairseq, multiple 1, all steps kept", func(l bucket.Lengths, c bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch {
			return deal(byTokens(l, sorted(l), tokens, 1), ranks, false)
		}},
		{"fixed max tokens, random order", func(l bucket.Lengths, c bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch {
			return deal(byTokens(l, shuffled(l, r), tokens, 1), ranks, false)
		}},
		{"lhotse linear, 30 buckets", lhotse},
		{"OOMptimizer + lhotse, 30 buckets", oomptimizer},
		{"HF group_by_length", groupByLength},
	}
}

// grouped shuffles whole groups of a batch per rank, cut from sorted batches, and drops the
// last batches, the longest, that fill no group (fairseq, EpochBatchIterator with
// grouped_shuffling).
func grouped(l bucket.Lengths, _ bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch {
	s := deal(byTokens(l, sorted(l), tokens, 1), ranks, true)
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// SafeTokens is the largest number of padded tokens that fits at every length that occurs:
// the best token limit there is. It is above the tokens of the largest batch of the longest
// samples, which is what a user finds who tries the longest, since a batch is a whole number.
func SafeTokens(l bucket.Lengths, c bucket.Cost) int {
	least := bucket.MaxLength * 64
	for n, k := range histogram(l) {
		if k > 0 {
			least = min(least, (c.Cap(n)+1)*n-1)
		}
	}
	return least
}

// sorted are the samples from the shortest on, those of one length in the data set's order.
func sorted(l bucket.Lengths) []uint32 {
	hist := histogram(l)
	start := make([]int, len(hist)+1)
	for n, k := range hist {
		start[n+1] = start[n] + k
	}
	out := make([]uint32, len(l))
	for i, n := range l {
		out[start[n]] = uint32(i)
		start[n]++
	}
	return out
}

// histogram is the number of samples of each length.
func histogram(l bucket.Lengths) []int {
	hist := make([]int, slices.Max(l)+1)
	for _, n := range l {
		hist[n]++
	}
	return hist
}

func shuffled(l bucket.Lengths, r *rand.Rand) []uint32 {
	out := make([]uint32, len(l))
	for i := range out {
		out[i] = uint32(i)
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// byTokens adds samples while count x longest stays within the tokens; a full batch of at
// least multiple samples is cut to a multiple of it (fairseq, data_utils_fast.batch_by_size_vec).
func byTokens(l bucket.Lengths, order []uint32, tokens, multiple int) [][]uint32 {
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
		if at+n < len(order) && n > multiple {
			n -= n % multiple
		}
		out = append(out, order[at:at+n])
		at += n
	}
	return out
}

// deal gives batches to ranks in turn; an incomplete last step is dropped or kept.
func deal(b [][]uint32, ranks int, drop bool) [][]bucket.RankBatch {
	var out [][]bucket.RankBatch
	for i := 0; i < len(b); i += ranks {
		if drop && i+ranks > len(b) {
			break
		}
		var step []bucket.RankBatch
		for k := i; k < min(i+ranks, len(b)); k++ {
			step = append(step, bucket.RankBatch{Rank: k - i, Samples: b[k]})
		}
		out = append(out, step)
	}
	return out
}

// thirty are 30 buckets of equal total length, each in random order, and their uppers.
func thirty(l bucket.Lengths, r *rand.Rand) (samples [][]uint32, uppers []int) {
	uppers, _ = plain.Uppers(l, 30) // an error of other numbers alone
	samples = make([][]uint32, len(uppers))
	for _, i := range shuffled(l, r) {
		k := sort.SearchInts(uppers, int(l[i]))
		samples[k] = append(samples[k], i)
	}
	return samples, uppers
}

// drawn takes a step from a random bucket, all ranks from the same, until every bucket is
// empty; take cuts one batch off a bucket's samples.
func drawn(buckets [][]uint32, ranks int, r *rand.Rand, take func(k int, rest []uint32) int) [][]bucket.RankBatch {
	var out [][]bucket.RankBatch
	for {
		left := 0
		for _, b := range buckets {
			left += len(b)
		}
		if left == 0 {
			return out
		}
		pick, k := r.IntN(left), 0
		for pick >= len(buckets[k]) {
			pick -= len(buckets[k])
			k++
		}
		var step []bucket.RankBatch
		for rank := range ranks {
			if len(buckets[k]) == 0 {
				break
			}
			n := min(take(k, buckets[k]), len(buckets[k]))
			step = append(step, bucket.RankBatch{Rank: rank, Samples: buckets[k][:n]})
			buckets[k] = buckets[k][n:]
		}
		out = append(out, step)
	}
}

// lhotse closes a batch when the sum of its samples and one more of the longest seen pass
// the limit (DynamicBucketingSampler, TimeConstraint): padding is not counted, so a batch
// may run out of memory.
func lhotse(l bucket.Lengths, _ bucket.Cost, ranks, tokens int, r *rand.Rand) [][]bucket.RankBatch {
	buckets, _ := thirty(l, r)
	return drawn(buckets, ranks, r, func(_ int, rest []uint32) int {
		sum, longest := 0, 0
		for i, s := range rest {
			sum += int(l[s])
			longest = max(longest, int(l[s]))
			if sum+longest >= tokens {
				return i + 1
			}
		}
		return len(rest)
	})
}

// oomptimizer gives each bucket the largest batch that fits at its longest sample, found
// to 5% from below.
func oomptimizer(l bucket.Lengths, c bucket.Cost, ranks, _ int, r *rand.Rand) [][]bucket.RankBatch {
	buckets, uppers := thirty(l, r)
	return drawn(buckets, ranks, r, func(k int, _ []uint32) int { return max(1, c.Cap(uppers[k])*39/40) })
}

// groupByLength sorts within random groups of 50 steps and takes one batch size for all:
// the largest that fits the longest sample (transformers, LengthGroupedSampler).
func groupByLength(l bucket.Lengths, c bucket.Cost, ranks, _ int, r *rand.Rand) [][]bucket.RankBatch {
	longest := int(slices.Max(l))
	size := max(1, c.Cap(longest))
	order := shuffled(l, r)
	mega := size * ranks * 50
	var batches [][]uint32
	for at := 0; at < len(order); at += mega {
		part := order[at:min(at+mega, len(order))]
		slices.SortStableFunc(part, func(a, b uint32) int { return int(l[b]) - int(l[a]) })
	}
	for at := 0; at < len(order); at += size {
		batches = append(batches, order[at:min(at+size, len(order))])
	}
	return deal(batches, ranks, false)
}
