package stats_test

import (
	"fmt"

	"evenkeel/internal/stats"
)

func Example() {
	strata := [][]float64{{1, 2, 3, 4}, {5, 6, 7, 8}} // the runs of two scenarios
	i := stats.Bootstrap(strata)
	fmt.Println(i.Mean, i.Low < i.Mean, i.Mean < i.High)
	// Output: 4.5 true true
}
