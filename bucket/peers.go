package bucket

import (
	"math/rand/v2"
	"slices"
	"sort"
)

// Peer is another system's rule of batching, written from its published description as a
// baseline: the same scorer judges them all.
type Peer struct {
	Name string
	// Cut gives an epoch's steps. Tokens is the token limit a rule may need: SafeTokens,
	// or less.
	Cut func(l Lengths, c Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch
}

// Peers are the rules of fairseq (with its grouped shuffling and without), lhotse, NeMo's
// OOMptimizer on lhotse, transformers' group_by_length, and plain limits on tokens.
func Peers() []Peer {
	return []Peer{
		{"fairseq, default", func(l Lengths, c Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch {
			b := byTokens(l, sorted(l), tokens, 8)
			r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
			return deal(b, ranks, false)
		}},
		{"fairseq, grouped, multiple 1", grouped},
		{"fairseq, grouped, tokens of the longest", func(l Lengths, c Cost, ranks, _ int, r *rand.Rand) [][]RankBatch {
			longest := int(slices.Max(l))
			return grouped(l, c, ranks, c.Cap(longest)*longest, r)
		}},
		// Not fairseq's rule, but the fair comparison: it loses nothing.
		{"fairseq, multiple 1, all steps kept", func(l Lengths, c Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch {
			return deal(byTokens(l, sorted(l), tokens, 1), ranks, false)
		}},
		{"fixed max tokens, random order", func(l Lengths, c Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch {
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
func grouped(l Lengths, _ Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch {
	s := deal(byTokens(l, sorted(l), tokens, 1), ranks, true)
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// SafeTokens is the largest number of padded tokens that fits at every length that occurs:
// the best token limit there is. It is above the tokens of the largest batch of the longest
// samples, which is what a user finds who tries the longest, since a batch is a whole number.
func SafeTokens(l Lengths, c Cost) int {
	least := int(MaxLength) * 64
	for n, k := range l.histogram() {
		if k > 0 {
			least = min(least, (c.Cap(n)+1)*n-1)
		}
	}
	return least
}

func sorted(l Lengths) []uint32 {
	o := newOrder(l.histogram(), identity(l), 0, 0)
	o.fill(l)
	return o.index
}

func identity(l Lengths) []uint32 {
	out := make([]uint32, len(l.histogram()))
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

func shuffled(l Lengths, r *rand.Rand) []uint32 {
	out := make([]uint32, len(l))
	for i := range out {
		out[i] = uint32(i)
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// byTokens adds samples while count x longest stays within the tokens; a full batch of at
// least multiple samples is cut to a multiple of it (fairseq, data_utils_fast.batch_by_size_vec).
func byTokens(l Lengths, order []uint32, tokens, multiple int) [][]uint32 {
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
func deal(b [][]uint32, ranks int, drop bool) [][]RankBatch {
	var out [][]RankBatch
	for i := 0; i < len(b); i += ranks {
		if drop && i+ranks > len(b) {
			break
		}
		var step []RankBatch
		for k := i; k < min(i+ranks, len(b)); k++ {
			step = append(step, RankBatch{k - i, b[k]})
		}
		out = append(out, step)
	}
	return out
}

// thirty are 30 buckets of equal total length, each in random order, and their uppers.
func thirty(l Lengths, r *rand.Rand) (samples [][]uint32, uppers []int) {
	hist := l.histogram()
	rate := make([]float64, len(hist))
	for i := range rate {
		rate[i] = float64(i)
	}
	uppers = boundaries(hist, rate, EqualCost, 30)
	samples = make([][]uint32, len(uppers))
	for _, i := range shuffled(l, r) {
		k := sort.SearchInts(uppers, int(l[i]))
		samples[k] = append(samples[k], i)
	}
	return samples, uppers
}

// drawn takes a step from a random bucket, all ranks from the same, until every bucket is
// empty; take cuts one batch off a bucket's samples.
func drawn(buckets [][]uint32, ranks int, r *rand.Rand, take func(k int, rest []uint32) int) [][]RankBatch {
	var out [][]RankBatch
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
		var step []RankBatch
		for rank := range ranks {
			if len(buckets[k]) == 0 {
				break
			}
			n := min(take(k, buckets[k]), len(buckets[k]))
			step = append(step, RankBatch{rank, buckets[k][:n]})
			buckets[k] = buckets[k][n:]
		}
		out = append(out, step)
	}
}

// lhotse closes a batch when the sum of its samples and one more of the longest seen pass
// the limit (DynamicBucketingSampler, TimeConstraint): padding is not counted, so a batch
// may run out of memory.
func lhotse(l Lengths, _ Cost, ranks, tokens int, r *rand.Rand) [][]RankBatch {
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
func oomptimizer(l Lengths, c Cost, ranks, _ int, r *rand.Rand) [][]RankBatch {
	buckets, uppers := thirty(l, r)
	return drawn(buckets, ranks, r, func(k int, _ []uint32) int { return max(1, c.Cap(uppers[k])*39/40) })
}

// groupByLength sorts within random groups of 50 steps and takes one batch size for all:
// the largest that fits the longest sample (transformers, LengthGroupedSampler).
func groupByLength(l Lengths, c Cost, ranks, _ int, r *rand.Rand) [][]RankBatch {
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

// Listed gives steps that lie in memory to Judge.
func Listed(s [][]RankBatch) Steps {
	i := 0
	return func() ([]RankBatch, error) {
		if i == len(s) {
			return nil, nil
		}
		i++
		return s[i-1], nil
	}
}
