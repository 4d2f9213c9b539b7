package paired

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Where every cell is a sample, no other way to cut the row takes less: all are tried.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var row []shape
		for range rapid.IntRange(1, 10).Draw(t, "samples") {
			row = append(row, shape{rapid.IntRange(1, 9).Draw(t, "source"), rapid.IntRange(1, 9).Draw(t, "target")})
		}
		memory, fixed := rapid.IntRange(18, 80).Draw(t, "memory"), rapid.Float64Range(0, 20).Draw(t, "fixed")
		room := func(s shape) int { return max(1, memory/(s.Source+s.Target)) }
		seconds := func(s shape, n int) float64 { return fixed + float64(n*(s.Source+2*s.Target)) }
		took := func(ends []int) (sum float64) {
			at := 0
			for _, end := range ends {
				var s shape
				for _, x := range row[at:end] {
					s = shape{max(s.Source, x.Source), max(s.Target, x.Target)}
				}
				if end-at > room(s) || end <= at {
					return math.Inf(1)
				}
				sum += seconds(s, end-at)
				at = end
			}
			return sum
		}
		least := math.Inf(1)
		for cuts := range 1 << (len(row) - 1) {
			var ends []int
			for k := range len(row) - 1 {
				if cuts>>k&1 == 1 {
					ends = append(ends, k+1)
				}
			}
			least = min(least, took(append(ends, len(row))))
		}
		if got := took(cutRow(row, room, seconds)); math.Abs(got-least) > 1e-9 {
			t.Fatalf("%v, at best %v", got, least)
		}
	})
}

// Cells of several samples cover the row, fit, and cost little.
func TestCutOfCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var row []shape
		for range rapid.IntRange(1, 3000).Draw(t, "samples") {
			row = append(row, shape{1 + len(row)/300, 1})
		}
		row[rapid.IntRange(0, len(row)-1).Draw(t, "long")] = shape{900, 100}
		room := func(s shape) int { return max(1, 2000/(s.Source+s.Target)) }
		at := 0
		for _, end := range cutRow(row, room, func(s shape, n int) float64 { return 50 + float64(n*s.Source) }) {
			var s shape
			for _, x := range row[at:end] {
				s = shape{max(s.Source, x.Source), max(s.Target, x.Target)}
			}
			if n := end - at; n < 1 || n > room(s) {
				t.Fatalf("%d samples of %v from %d", n, s, at)
			}
			at = end
		}
		if at != len(row) {
			t.Fatalf("the row ends at %d of %d", at, len(row))
		}
	})
}
