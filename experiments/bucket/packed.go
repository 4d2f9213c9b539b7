package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/packed"
	"github.com/evenkeel/evenkeel/bucket/peers"
	"github.com/evenkeel/evenkeel/bucket/plain"
)

// packedTable scores batches whose samples lie end to end, ours and by two rules of others, all by the same cost.
func packedTable(b *strings.Builder, folder string) error {
	all, err := allSettings(folder)
	if err != nil {
		return err
	}
	b.WriteString("| data | ranks | rule | steps | epoch s | of the bound | imbalance | p99 | out of memory |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		name, _, _ := strings.Cut(strings.Split(s.name, ":")[0], "_")
		for _, ranks := range []int{8, 64} {
			p, err := packed.Make(s.lengths, s.cost, bucket.Config{Ranks: ranks})
			if err != nil {
				return err
			}
			row := func(rule string, steps bucket.Steps, c bucket.Cost) error {
				x, err := bucket.Judge(s.lengths, steps, c, p.Speeds, 0, nil)
				if err != nil {
					return err
				}
				fmt.Fprintf(b, "| %s | %d | %s | %d | %.1f | %.4f | %.4f | %.4f | %d |\n", name, ranks, rule, x.Steps, x.EpochSeconds, x.EpochSeconds/p.LowerBoundSeconds, x.Imbalance, x.ImbalanceP99, x.OutOfMemory)
				return nil
			}
			budget := peers.SafeTokens(s.lengths, s.cost)
			for _, x := range []struct {
				rule  string
				steps [][]bucket.RankBatch
			}{
				{"random order, tokens up to a limit", inOrder(s.lengths, ranks, budget)},
				{"best fit, longest first, of 1,000 samples each", bestFit(s.lengths, ranks, budget)},
				{"global batches, tokens evened out", evened(s.lengths, ranks, budget)},
			} {
				if err := row(x.rule, bucket.Listed(x.steps), p.Cost()); err != nil {
					return err
				}
			}
			if err := row("**evenkeel, packed**", p.Schedule(s.lengths, 1, 0).All(), p.Cost()); err != nil {
				return err
			}
			q, err := plain.Make(s.lengths, s.cost, bucket.Config{Ranks: ranks})
			if err != nil {
				return err
			}
			if err := row("evenkeel, padded, default mixing", q.Schedule(s.lengths, 1, 0).All(), s.cost); err != nil {
				return err
			}
		}
	}
	return nil
}

func permuted(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	r := rand.New(rand.NewPCG(1, 1))
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// dealt gives batches to the ranks in their order.
func dealt(batches [][]uint32, ranks int) (steps [][]bucket.RankBatch) {
	for i, b := range batches {
		if i%ranks == 0 {
			steps = append(steps, nil)
		}
		last := len(steps) - 1
		steps[last] = append(steps[last], bucket.RankBatch{Rank: i % ranks, Samples: b})
	}
	return steps
}

// inOrder adds samples in random order while their tokens stay within the limit.
func inOrder(l bucket.Lengths, ranks, budget int) [][]bucket.RankBatch {
	var batches [][]uint32
	tokens := budget
	for _, i := range permuted(len(l)) {
		if tokens+int(l[i]) > budget {
			batches, tokens = append(batches, nil), 0
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], i)
		tokens += int(l[i])
	}
	return dealt(batches, ranks)
}

// bestFit packs 1,000 samples at a time, the longest first, each into the fullest batch that has room for its tokens ("bfd" of TRL's documentation,
// which packs a data set in parts of 1,000), and shuffles the batches.
func bestFit(l bucket.Lengths, ranks, budget int) [][]bucket.RankBatch {
	var batches [][]uint32
	for part := range slices.Chunk(permuted(len(l)), 1000) {
		slices.SortFunc(part, func(a, b uint32) int { return cmp.Or(cmp.Compare(l[b], l[a]), cmp.Compare(a, b)) })
		first := len(batches)
		var free []int
		for _, i := range part {
			n, at := int(l[i]), -1
			for k, f := range free {
				if f >= n && (at < 0 || f < free[at]) {
					at = k
				}
			}
			if at < 0 {
				at = len(free)
				free, batches = append(free, budget), append(batches, nil)
			}
			free[at] -= n
			batches[first+at] = append(batches[first+at], i)
		}
	}
	rand.New(rand.NewPCG(2, 2)).Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	return dealt(batches, ranks)
}

// evened gives each step as many samples as fill 90% of the ranks' tokens in the mean, and deals them, the longest first, each to the rank with
// the fewest tokens so far.
func evened(l bucket.Lengths, ranks, budget int) (steps [][]bucket.RankBatch) {
	n := max(ranks, int(.9*float64(budget)*float64(ranks)/(float64(total(l))/float64(len(l)))))
	for part := range slices.Chunk(permuted(len(l)), n) {
		slices.SortFunc(part, func(a, b uint32) int { return cmp.Or(cmp.Compare(l[b], l[a]), cmp.Compare(a, b)) })
		step, tokens := make([]bucket.RankBatch, ranks), make([]int, ranks)
		for _, i := range part {
			r := 0
			for k := range tokens {
				if tokens[k] < tokens[r] {
					r = k
				}
			}
			step[r].Rank, step[r].Samples = r, append(step[r].Samples, i)
			tokens[r] += int(l[i])
		}
		steps = append(steps, slices.DeleteFunc(step, func(b bucket.RankBatch) bool { return len(b.Samples) == 0 }))
	}
	return steps
}
