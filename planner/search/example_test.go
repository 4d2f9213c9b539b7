package search_test

import (
	"context"
	"fmt"
	"log"

	"evenkeel/planner/search"
)

// four is a cost function of one's own: four layers of 1, 2, 3 and 4 s on up to two equal devices, a stage each, without
// links; eight micro-batches.
type four struct{}

func (four) Layers() int                                      { return 4 }
func (four) Pool() []int                                      { return []int{2} }
func (four) Shapes() []search.Shape                           { return []search.Shape{{1}} }
func (four) Degrees() (least, most int)                       { return 1, 4 }
func (four) Fits(int, []int) bool                             { return true }
func (four) Kind(int) int                                     { return 0 }
func (four) Boundary(_, _, _ int, _ []int) (s search.Sending) { return s }
func (four) Work(_, layer int) float64                        { return float64(1 + layer) }
func (four) Least([]float64) float64                          { return 0 }
func (four) Exact() bool                                      { return true }
func (four) Grain() []int                                     { return []int{1} }

func (four) Total(f search.Front) float64 { return f.Sum + 7*f.Max + f.PerIteration }

func (c four) Stage(from, to, _, _ int) []search.Point {
	step := 0.0
	for l := from; l < to; l++ {
		step += c.Work(0, l)
	}
	return []search.Point{{Step: step}}
}

func Example() {
	r, err := search.Run(context.Background(), []search.Costs{four{}}, search.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range r.Best[0].Choices {
		fmt.Printf("layers %d to %d: %v s\n", s.From, s.To-1, s.Point.Step)
	}
	fmt.Printf("%v s; exact: %v\n", r.Best[0].Total, r.Bound >= r.Best[0].Total)
	// Output:
	// layers 0 to 2: 6 s
	// layers 3 to 3: 4 s
	// 52 s; exact: true
}
