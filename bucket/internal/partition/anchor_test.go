package partition

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket/internal/invented"
	"evenkeel/bucket/stepcost"
)

// No factor of a fine grid that stays within the slack gives fewer anchors than the search, and what it gives stays within.
func TestAnchorTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hist := make([]uint32, 400)
		for range rapid.IntRange(1, 30).Draw(t, "lengths") {
			hist[rapid.IntRange(1, 399).Draw(t, "length")] += 1 + rapid.Uint32Range(0, 50).Draw(t, "count")
		}
		c := invented.Formula{Fixed: rapid.Float64Range(0, .5).Draw(t, "a"), Token: 4e-5, Square: 8e-7, Room: 500}
		slack := rapid.Float64Range(0.001, .05).Draw(t, "slack")
		best, _ := Efficient(hist, c)
		spent := func(anchors []float64) (sum float64) {
			for l, n := range hist {
				if n == 0 {
					continue
				}
				b := best[l]
				if b > FewSamples { // the largest anchor up to its own duration, else the least
					limit := anchors[0]
					for _, v := range anchors {
						if v <= c.Seconds(l, b)*(1+1e-9) {
							limit = v
						}
					}
					for b > 1 && c.Seconds(l, b) > limit*(1+1e-9) {
						b--
					}
				}
				sum += float64(n) * c.Seconds(l, b) / float64(b)
			}
			return sum
		}
		got := SearchAnchors(hist, c, best, slack)
		most := spent([]float64{math.Inf(1)}) * (1 + slack)
		if len(got) > 1 && spent(got) > most*(1+1e-9) {
			t.Fatalf("%v: work %v above %v", got, spent(got), most)
		}
		least := math.Inf(1)
		for l, n := range hist {
			if n > 0 && best[l] > FewSamples {
				least = min(least, c.Seconds(l, best[l]))
			}
		}
		if !math.IsInf(least, 1) && spent([]float64{least}) <= most*(1-1e-9) && len(got) > 1 {
			t.Fatalf("%d anchors where the least duration alone is within the slack", len(got))
		}
	})
}

// With costs linear between the trials nothing in a full scan beats what the breaks give.
func TestBoundTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table stepcost.Table
		for n := 10; n <= 30; n += 10 {
			for _, b := range []int{1, 3, 7, 12} {
				table = append(table, stepcost.Trial{Length: n, Batch: b, Seconds: rapid.Float64Range(.1, 3).Draw(t, "seconds")})
			}
		}
		c, err := stepcost.New(table, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 30).Draw(t, "length")
		hist := make([]uint32, n+1)
		hist[n] = 1
		_, rate := Efficient(hist, c)
		best := math.Inf(1)
		for b := 1; b <= c.Cap(n); b++ {
			best = min(best, c.Seconds(n, b)/float64(b))
		}
		if math.Abs(best-rate[n]) > 1e-12 {
			t.Fatalf("by breaks %v, by scan %v", rate[n], best)
		}
	})
}
