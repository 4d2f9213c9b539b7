package chart_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"evenkeel/internal/chart"
)

func Example() {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rounds := []float64{1, 2, 3}
	f := chart.Figure{Title: "A run", Panels: []chart.Panel{
		{
			XLabel: "round", YLabel: "seconds",
			Series: []chart.Series{
				{Name: "round time", Kind: chart.Line, X: rounds, Y: []float64{9, 8, 8.5}},
				{Kind: chart.Band, X: rounds, Low: []float64{8, 7, 7.5}, High: []float64{10, 9, 9.5}}, // no name: belongs to the line before
			},
		},
		{ // a front: where more of X is better, in descending order of X
			XLabel: "goodput", YLabel: "freshness",
			Series: []chart.Series{
				{Name: "ddqn", Kind: chart.Points, X: []float64{1, 0.9}, Y: []float64{0.5, 0.8}},
				{Kind: chart.Step, X: []float64{1, 0.9}, Y: []float64{0.5, 0.8}},
			},
		},
	}}
	fmt.Println(f.Save(filepath.Join(dir, "run.svg")))
	fmt.Println(f.Save("run.gif"))
	// Output:
	// <nil>
	// chart: the file name must end in .svg: "run.gif"
}
