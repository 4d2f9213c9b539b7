package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/packed"
	"evenkeel/bucket/plain"
)

// packedTable scores batches whose samples lie end to end, ours and by two rules of others, all by the same cost.
func packedTable(folder string) error {
	all, err := allSettings(folder)
	if err != nil {
		return err
	}
	fmt.Print("| data | ranks | rule | steps | epoch s | of the bound | imbalance | p99 | out of memory |\n|---|---|---|---|---|---|---|---|---|\n")
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
				fmt.Printf("| %s | %d | %s | %d | %.1f | %.4f | %.4f | %.4f | %d |\n", name, ranks, rule, x.Steps, x.EpochSeconds, x.EpochSeconds/p.LowerBoundSeconds, x.Imbalance, x.ImbalanceP99, x.OutOfMemory)
				return nil
			}
			budget := safeTokens(s.lengths, s.cost)
			for _, x := range []struct {
				rule  string
				steps [][]bucket.RankBatch
			}{
				{"random order, tokens up to a limit", inOrder(s.lengths, ranks, budget)},
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

// inOrder adds samples in random order while their tokens stay within the limit.
func inOrder(l bucket.Lengths, ranks, budget int) [][]bucket.RankBatch {
	var batches [][]uint32
	tokens := budget
	for _, i := range permuted(len(l), rand.New(rand.NewPCG(1, 1))) {
		if tokens+int(l[i]) > budget {
			batches, tokens = append(batches, nil), 0
		}
		last := len(batches) - 1
		batches[last] = append(batches[last], i)
		tokens += int(l[i])
	}
	return dealt(batches, ranks, false)
}

// evened gives each step as many samples as fill 90% of the ranks' tokens in the mean, and deals them, the longest first, each to the rank with
// the fewest tokens so far.
func evened(l bucket.Lengths, ranks, budget int) (steps [][]bucket.RankBatch) {
	n := max(ranks, int(.9*float64(budget)*float64(ranks)/(float64(total(l))/float64(len(l)))))
	for part := range slices.Chunk(permuted(len(l), rand.New(rand.NewPCG(1, 1))), n) {
		slices.SortFunc(part, func(a, b uint32) int { return cmp.Or(cmp.Compare(l[b], l[a]), cmp.Compare(a, b)) })
		step, tokens := make([]bucket.RankBatch, ranks), make([]int, ranks)
		for _, i := range part {
			r := slices.Index(tokens, slices.Min(tokens))
			step[r].Rank, step[r].Samples = r, append(step[r].Samples, i)
			tokens[r] += int(l[i])
		}
		steps = append(steps, slices.DeleteFunc(step, func(b bucket.RankBatch) bool { return len(b.Samples) == 0 }))
	}
	return steps
}
