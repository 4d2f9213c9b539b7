package main

import (
	"fmt"
	"strings"

	"evenkeel/bucket"
)

// allSettings are those with a known bound, and the real ones of a folder, if there is one.
func allSettings(folder string) ([]setting, error) {
	if folder == "" {
		return settings(), nil
	}
	more, err := realSettings(folder)
	return append(settings(), more...), err
}

// mixing scores how often step-mates meet again, and what that costs, over the mean of three epochs.
func mixing(folder string) error {
	all, err := allSettings(folder)
	if err != nil {
		return err
	}
	fmt.Print("| data | ranks | mixing | steps | of the bound | p99 | meet again | in random steps |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		name, _, _ := strings.Cut(strings.Split(s.name, ":")[0], "_")
		for _, ranks := range []int{8, 64} {
			for _, mixing := range []float64{0, .003, bucket.DefaultMixing, .03} {
				p, err := bucket.Make(s.lengths, s.cost, bucket.Config{Ranks: ranks, Mixing: &mixing})
				if err != nil {
					return err
				}
				var ratio, p99, again, random float64
				steps := 0
				const epochs = 3
				for epoch := range uint64(epochs) {
					score, err := bucket.Judge(s.lengths, p.Schedule(s.lengths, 1, epoch).All(), s.cost, p.Speeds, 0)
					if err != nil {
						return err
					}
					x, y := p.Recurrence(s.lengths, 1, epoch)
					ratio += score.EpochSeconds / p.LowerBoundSeconds / epochs
					p99 += score.ImbalanceP99 / epochs
					again += x / epochs
					random += y / epochs
					steps = score.Steps
				}
				fmt.Printf("| %s | %d | %v | %d | %.4f | %.4f | %.3f | %.3f |\n", name, ranks, mixing, steps, ratio, p99, again, random)
			}
		}
	}
	return nil
}
