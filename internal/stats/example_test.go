package stats_test

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/stats"
)

func Example() {
	strata := [][]float64{{1, 2, 3, 4}, {5, 6, 7, 8}} // the runs of two scenarios
	i := stats.Bootstrap(strata)
	fmt.Println(i.Mean, i.Low < i.Mean, i.Mean < i.High)
	fmt.Println(stats.IQM(strata).Mean) // of 3, 4, 5 and 6
	for _, p := range stats.Profile(strata, []float64{4, 9}) {
		fmt.Println(p.Mean) // share of runs at or above 4, and 9
	}
	fmt.Println(stats.Hypervolume([][]float64{{2, 1}, {1, 3}}, []float64{0, 0}))
	// Output:
	// 4.5 true true
	// 4.5
	// 0.625
	// 0
	// 4
}
