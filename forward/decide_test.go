package forward

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// span is the numbers from low to high.
type span struct{ low, high float64 }

// moveOf is what a step may add to a weight along each direction, from the losses alone and written down as the formula of
// Config is: the mean over examples of the slopes along it, times the learning rate; over the deviation of the losses, if that
// is wanted and their variance is above 1e-12. It shares no line with decide. It takes the variance from the deviations, which
// is exact to a few digits; mean of squares less square of mean, as decide has it, may be wrong by what rounding does to the
// squares, so moves are known within a span and around 1e-12 both rules are right.
func moveOf(c *Config, rate float64, losses [][2]float32, counted []bool) (moves []span, loss float64) {
	moves = make([]span, c.Directions)
	examples, all := 0, []float64{}
	for p := range c.Examples {
		if !counted[p] {
			continue
		}
		examples += c.Examples[p]
		for _, l := range [][2]float32{losses[2*p], losses[2*p+1]} {
			all = append(all, float64(l[0]), float64(l[1]))
		}
	}
	mean, largest := 0.0, 0.0
	for _, l := range all {
		mean += l / float64(len(all))
		largest = math.Max(largest, l)
	}
	divisors := []float64{1}
	if c.Normalize {
		variance := 0.0
		for _, l := range all {
			variance += (l - mean) * (l - mean) / float64(len(all))
		}
		// Two sums of n terms, each at most the largest square, and a few more operations, each rounded to 2^-53 of its size.
		wrong := float64(4*len(all)+8) * largest * largest * math.Exp2(-53)
		if variance-wrong > 1e-12 {
			divisors = nil
		}
		for _, v := range []float64{variance - wrong, variance + wrong} {
			if v > 1e-12 {
				divisors = append(divisors, math.Sqrt(v))
			} else if variance+wrong > 1e-12 {
				divisors = append(divisors, 1e-6)
			}
		}
	}
	slopes := make([]float64, c.Directions)
	for p, n := range c.Examples {
		if !counted[p] {
			continue
		}
		slope := 0.0
		for input := range 2 {
			slope += (float64(losses[2*p][input]) - float64(losses[2*p+1][input])) / (2 * c.Epsilon) / 2
		}
		if c.Clip > 0 {
			slope = math.Max(-c.Clip, math.Min(c.Clip, slope))
		}
		slopes[p*c.Directions/len(c.Examples)] += slope * float64(n) / float64(examples)
	}
	for d, s := range slopes {
		moves[d] = span{math.Inf(1), math.Inf(-1)}
		for _, v := range divisors {
			x := -rate * s / v
			moves[d] = span{math.Min(moves[d].low, x), math.Max(moves[d].high, x)}
		}
	}
	return moves, mean
}

// The decision of a step is the formula's, whichever pairs take part, clipped and normalized or not, and with losses so close
// to each other that they are not normalized.
func TestDecideIsTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SampledFrom([][2]int{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {6, 3}, {64, 4}}).Draw(t, "pairs, directions")
		pairs := shape[0]
		c := &Config{Processors: 2 * pairs, Directions: shape[1], Kind: Rademacher, Steps: 100, Epsilon: rapid.SampledFrom([]float64{1e-3, 0.25}).Draw(t, "epsilon"),
			LearningRate: 0.01, Schedule: "linear", Clip: rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "clip"), Normalize: rapid.Bool().Draw(t, "normalize")}
		step := rapid.IntRange(0, 99).Draw(t, "step")
		losses, counted, broken := make([][2]float32, 2*pairs), make([]bool, pairs), make([]bool, pairs)
		for p := range pairs {
			c.Examples = append(c.Examples, rapid.IntRange(1, 9).Draw(t, "examples"))
			counted[p] = rapid.Bool().Draw(t, "there")
		}
		counted[rapid.IntRange(0, pairs-1).Draw(t, "one at least")] = true
		level := rapid.SampledFrom([]float64{0, 0, 0.1, 4}).Draw(t, "level")
		spread := rapid.SampledFrom([]float64{4, 4, 1e-3, 1e-5, 4e-6, 1e-6}).Draw(t, "spread")
		for i := range losses {
			for k := range 2 {
				losses[i][k] = float32(level + rapid.Float64Range(0, spread).Draw(t, "loss"))
			}
		}
		var r round
		r.begin(c, uint32(step), c.allPairs())
		dropped, names := 0, uint64(0)
		for p := range pairs {
			if !counted[p] {
				continue
			}
			names |= 1 << p
			if broken[p] = rapid.IntRange(0, 5).Draw(t, "broken") == 0; broken[p] {
				losses[2*p+p%2][p/2%2] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[p%3]
				dropped++
			}
			r.take(Frame{Step: uint32(step), Rank: uint16(2 * p), Losses: losses[2*p]})
			r.take(Frame{Step: uint32(step), Rank: uint16(2*p + 1), Losses: losses[2*p+1]})
			counted[p] = !broken[p]
		}
		got := r.decide(names)
		want := make([]span, c.Directions)
		if slices.Contains(counted, true) {
			var loss float64
			want, loss = moveOf(c, 0.01*(1-float64(step)/100), losses, counted)
			if math.Abs(got.Loss-loss) > 1e-9 {
				t.Fatalf("loss %v, want %v", got.Loss, loss)
			}
		}
		if got.Dropped != dropped {
			t.Fatalf("%d pairs dropped, want %d", got.Dropped, dropped)
		}
		for p, is := range counted {
			if got.Pairs>>p&1 == 1 != is {
				t.Fatalf("pairs %b, want %v", got.Pairs, counted)
			}
		}
		units := func(x float64) float64 {
			most := math.Exp2(25) / float64(c.Directions)
			return math.Max(-most, math.Min(most, x*math.Exp2(24)))
		}
		for d := range want {
			low, high := units(want[d].low), units(want[d].high)
			if k := float64(got.Increments[d]); k < low-1-1e-9*math.Abs(low) || k > high+1+1e-9*math.Abs(high) {
				t.Fatalf("direction %d moves by %v units, want %v to %v", d, k, low, high)
			}
		}
	})
}

// The smallest variance by which a step is divided: losses 1e-6 either side of their mean are not, and a little further are.
func TestNormalizeNeedsVariance(t *testing.T) {
	for _, half := range []float64{0.5e-6, 0.999e-6, 1.001e-6, 2e-6} {
		c := &Config{Processors: 2, Directions: 1, Kind: Rademacher, Steps: 1, Epsilon: 0.25, Examples: []int{1}, LearningRate: 0.01, Normalize: true}
		var r round
		r.begin(c, 0, 1)
		// Around 0 nothing cancels.
		r.take(Frame{Rank: 0, Losses: [2]float32{float32(half), float32(half)}})
		r.take(Frame{Rank: 1, Losses: [2]float32{float32(-half), float32(-half)}})
		slope := 2 * half / (2 * c.Epsilon)
		want := -c.LearningRate * slope * math.Exp2(24)
		if half > 1e-6 {
			want /= half
		}
		if got := float64(r.decide(1).Increments[0]); math.Abs(got-want) > 1 {
			t.Errorf("losses of %v and %v: %v units, want %v", half, -half, got, want)
		}
	}
}

// No step moves further than fixed point has room for, by either kind of direction and with what momentum repeats.
func TestMovesAreLimited(t *testing.T) {
	for _, c := range []struct {
		kind     Kind
		momentum float64
		want     int32
	}{{Rademacher, 0, 1 << 24}, {Rademacher, 0.75, 1 << 22}, {Gaussian, 0, (1 << 24) / 5}} {
		config := testConfig(4, 2, 10)
		config.Kind, config.Momentum, config.LearningRate = c.kind, c.momentum, 100
		var r round
		r.begin(config, 0, 3)
		for rank := range uint16(4) {
			r.take(Frame{Rank: rank, Losses: [2]float32{1e6 * float32(rank%2), 0}})
		}
		if got := r.decide(3).Increments; got[0] != c.want || got[1] != c.want {
			t.Errorf("%s, momentum %v: increments %d, want %d", c.kind, c.momentum, got, c.want)
		}
	}
}
