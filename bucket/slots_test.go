package bucket

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The fastest rank has the number of places that was asked for, or eight at most; every rank has one at least.
func TestStepBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SliceOfN(rapid.Float64Range(1e-6, 1e6), 1, 40).Draw(t, "speeds")
		most := rapid.IntRange(0, 64).Draw(t, "micro batches")
		got := (&Plan{Config: Config{Ranks: len(speeds), Speeds: speeds, MicroBatches: most}}).StepBatches()
		fastest := got[slices.Index(speeds, slices.Max(speeds))]
		if slices.Min(got) < 1 || slices.Max(got) != fastest || most > 0 && fastest != most || fastest > max(most, 8) {
			t.Fatalf("%v for speeds %v", got, speeds)
		}
	})
}

// By default as few places as leave an eighth of the speed in places that long samples pass by, else the number that leaves least.
func TestDefaultPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := rapid.SliceOfN(rapid.Float64Range(.01, 1), 1, 20).Draw(t, "speeds")
		passed := func(n int) float64 {
			places, largest, sum, out := make([]float64, len(speeds)), 0.0, 0.0, 0.0
			for r, v := range speeds {
				places[r] = max(1, math.Floor(v/slices.Max(speeds)*float64(n)+.5))
				largest = max(largest, v/places[r])
			}
			for r, v := range speeds {
				if sum += v; v/places[r] < .899*largest {
					out += v
				}
			}
			return out / sum
		}
		all := []float64{}
		for n := 1; n <= 8; n++ {
			if all = append(all, passed(n)); all[n-1] <= 1./8 {
				break
			}
		}
		got := slices.Max((&Plan{Config: Config{Ranks: len(speeds), Speeds: speeds}}).StepBatches())
		if at := slices.IndexFunc(all, func(v float64) bool { return v <= slices.Min(all)*(1+1e-8)+1e-12 }); got != at+1 {
			t.Fatalf("%d places for speeds %v: %v pass by", got, speeds, all)
		}
	})
}

// The largest batch within the limits, by trying.
func TestLimitsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limits{samples: rapid.IntRange(0, 50).Draw(t, "samples"), tokens: rapid.IntRange(0, 400).Draw(t, "tokens")}
		n, tokens, want := rapid.IntRange(0, 60).Draw(t, "n"), rapid.IntRange(1, 40).Draw(t, "each"), 0
		share := float64(rapid.IntRange(1, 4).Draw(t, "quarters")) / 4
		for b := 1; b <= n; b++ {
			if (l.samples == 0 || float64(b) <= share*float64(l.samples)) && (l.tokens == 0 || float64(b*tokens) <= share*float64(l.tokens)) {
				want = b
			}
		}
		if got := l.of(n, tokens, share); got != want {
			t.Fatalf("%+v: %d of %d with %d tokens, want %d", l, got, n, tokens, want)
		}
	})
}

// No more ranges than asked for, the last one to the longest length; none but a single length is more than its part of the work above it.
func TestBoundaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hist := rapid.SliceOfN(rapid.Uint32Range(0, 9), 2, 60).Draw(t, "lengths")
		hist[0], hist[len(hist)-1] = 0, 1+hist[len(hist)-1]
		n, rate, total := rapid.IntRange(1, 15).Draw(t, "ranges"), make([]float64, len(hist)), 0.0
		for l := range rate {
			rate[l] = rapid.Float64Range(0.01, 10).Draw(t, "rate")
			total += rate[l] * float64(hist[l])
		}
		got := boundaries(hist, rate, n)
		if len(got) > n || got[len(got)-1] != len(hist)-1 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%v of %d", got, n)
		}
		from := 0
		for _, to := range got {
			sum, most := 0.0, 0.0
			for l := from + 1; l <= to; l++ {
				sum, most = sum+rate[l]*float64(hist[l]), max(most, rate[l]*float64(hist[l]))
			}
			if sum > total/float64(n)+most*(1+1e-9) {
				t.Fatalf("%d to %d: %v of %v in %d ranges, the most of a length is %v", from, to, sum, total, n, most)
			}
			from = to
		}
	})
}
