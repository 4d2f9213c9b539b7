package paired_test

import (
	"fmt"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/bucket/paired"
	"evenkeel/bucket/stepcost"
)

// Translations: sources and targets are padded apart.
func ExampleMake() {
	text := "en,de\n" + strings.Repeat("5,6\n7,7\n20,24\n", 100)
	pairs, err := lengthfile.ReadPairs(strings.NewReader(text), "pairs.csv", lengthfile.Options{Column: "en,de"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var table stepcost.Table
	for _, source := range []int{7, 20} {
		for _, target := range []int{6, 24} {
			for _, batch := range []int{1, 8, 20} {
				table = append(table, stepcost.Trial{Length: source, Target: target, Batch: batch, Seconds: .01 + .001*float64(batch*(source+2*target))})
			}
		}
	}
	cost, err := stepcost.NewPair(table, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := paired.Make(pairs, cost, bucket.Config{Ranks: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule := plan.Schedule(pairs.Kinds, 1, 0)
	fmt.Println(schedule.Len(), "steps, lost", plan.Lost)
	source, target := pairs.Of(2)
	fmt.Println(source, target)
	// Output:
	// 16 steps, lost 0
	// 20 24
}
