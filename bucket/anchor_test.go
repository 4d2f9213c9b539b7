package bucket

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// No factor of a fine grid that stays within the slack gives fewer anchors than the search, and what it gives stays within.
func TestAnchorTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hist := make([]uint32, 400)
		for range rapid.IntRange(1, 30).Draw(t, "lengths") {
			hist[rapid.IntRange(1, 399).Draw(t, "length")] += 1 + rapid.Uint32Range(0, 50).Draw(t, "count")
		}
		c := Formula{Fixed: rapid.Float64Range(0, .5).Draw(t, "a"), Token: 4e-5, Square: 8e-7, Room: 500}
		slack := rapid.Float64Range(0.001, .05).Draw(t, "slack")
		best, _ := efficient(hist, c)
		spent := func(anchors []float64) (sum float64) {
			for l, n := range hist {
				if n == 0 {
					continue
				}
				b := best[l]
				if b > fewSamples { // the largest anchor up to its own duration, else the least
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
		got := searchAnchors(hist, c, best, slack)
		most := spent([]float64{math.Inf(1)}) * (1 + slack)
		if len(got) > 1 && spent(got) > most*(1+1e-9) {
			t.Fatalf("%v: work %v above %v", got, spent(got), most)
		}
		least := math.Inf(1)
		for l, n := range hist {
			if n > 0 && best[l] > fewSamples {
				least = min(least, c.Seconds(l, best[l]))
			}
		}
		if !math.IsInf(least, 1) && spent([]float64{least}) <= most*(1-1e-9) && len(got) > 1 {
			t.Fatalf("%d anchors where the least duration alone is within the slack", len(got))
		}
	})
}
