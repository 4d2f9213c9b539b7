package main

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawPoints(t *rapid.T, objectives int) [][]float64 {
	var points [][]float64
	for range rapid.IntRange(0, 7).Draw(t, "points") {
		p := make([]float64, objectives)
		for o := range p {
			p[o] = float64(rapid.IntRange(-1, 6).Draw(t, "value"))
		}
		points = append(points, p)
	}
	return points
}

// On whole numbers the hypervolume is the number of unit cells that some point covers.
func TestHypervolume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objectives := rapid.IntRange(1, 4).Draw(t, "objectives")
		points := drawPoints(t, objectives)
		cells, cell := 0, make([]int, objectives)
		var count func(o int)
		count = func(o int) {
			if o == objectives {
				for _, p := range points {
					inside := true
					for k, c := range cell {
						inside = inside && p[k] >= float64(c+1)
					}
					if inside {
						cells++
						return
					}
				}
				return
			}
			for cell[o] = range 6 {
				count(o + 1)
			}
		}
		count(0)
		if got := hypervolume(points, make([]float64, objectives)); math.Abs(got-float64(cells)) > 1e-9 {
			t.Fatalf("%v: %v, counted %d", points, got, cells)
		}
		// What is dominated adds nothing.
		var front [][]float64
		for _, i := range pareto(points) {
			front = append(front, points[i])
		}
		if got := hypervolume(front, make([]float64, objectives)); math.Abs(got-float64(cells)) > 1e-9 {
			t.Fatalf("%v: the front alone has %v of %d", points, got, cells)
		}
	})
}

// pareto returns the indices of the points that no other dominates: none is as good in
// every objective and better in one. All objectives are to be large. Of equal points the
// first is kept.
func pareto(points [][]float64) []int {
	var front []int
next:
	for i, p := range points {
		for j, q := range points {
			if dominates(q, p) && (j < i || !slices.Equal(p, q)) {
				continue next
			}
		}
		front = append(front, i)
	}
	return front
}

// dominates says whether p is at least as good as q in every objective.
func dominates(p, q []float64) bool {
	for o := range p {
		if p[o] < q[o] {
			return false
		}
	}
	return true
}
