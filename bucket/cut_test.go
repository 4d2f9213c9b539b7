package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/internal/race"
	"evenkeel/internal/slow"
)

// A small sorted epoch is near the best that steps of consecutive batches can be, found over all durations that a batch can have.
func TestSmallEpochs(t *testing.T) {
	slow.Skip(t)
	if race.Enabled {
		t.Skip("one goroutine; its numbers are judged without the race detector")
	}
	worst := 0.0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := make(Lengths, 300+r.IntN(800))
		for i := range l {
			l[i] = uint32(5 + r.IntN(4+int(seed)) + r.IntN(12))
		}
		c, ranks := capped{Formula{Fixed: .02, Token: .001, Square: 0, Room: math.Inf(1)}, 300 + r.IntN(900)}, 2+r.IntN(5)
		p, err := Make(l, c, Config{Ranks: ranks, Mixing: with(0)})
		if err != nil {
			t.Fatal(err)
		}
		least := consecutive(l, c, ranks)
		_, two := p.predict(l) // two epochs: they begin differently
		worst = max(worst, two/2/least)
		if two/2 > least*1.05 {
			t.Errorf("seed %d: %d samples, %d ranks: %v s in %d steps, %v s are possible", seed, len(l), ranks, two/2, p.Steps, least)
		}
	}
	t.Logf("at most %.4f of what is possible", worst)
}

// consecutive is the least time of an epoch, longest samples first, whose steps are a batch for each rank, none longer than the step.
func consecutive(l Lengths, c Cost, ranks int) float64 {
	falling := slices.Clone(l)
	slices.Sort(falling)
	slices.Reverse(falling)
	var durations []float64
	for _, v := range slices.Compact(slices.Clone(falling)) {
		for n := 1; n <= c.Cap(int(v)); n++ {
			durations = append(durations, c.Seconds(int(v), n))
		}
	}
	slices.Sort(durations)
	durations = slices.Compact(durations)
	least := make([]float64, len(l)+1) // from a sample on
	for i := len(l) - 1; i >= 0; i-- {
		least[i] = math.Inf(1)
		for _, d := range durations {
			at, took := i, 0.0
			for range ranks {
				n := 0
				for at+n < len(l) && n < c.Cap(int(falling[at])) && c.Seconds(int(falling[at]), n+1) <= d {
					n++
				}
				if n > 0 {
					took = max(took, c.Seconds(int(falling[at]), n))
				}
				at += n
			}
			if at > i {
				least[i] = min(least[i], took+least[at])
			}
		}
	}
	return least[0]
}

// What plan prints of a small epoch, whose steps are shorter than the anchors, is what its batches are.
func TestBandsAreOfTheEpoch(t *testing.T) {
	l := make(Lengths, 600)
	for i := range l {
		l[i] = uint32(10 + i%90)
	}
	cost := Formula{Fixed: 1e-9, Token: .001, Square: 0, Room: math.Inf(1)} // next to nothing is fixed: short steps pad less
	for _, mixing := range []float64{0, .01} {
		p, err := Make(l, cost, Config{Ranks: 2, Mixing: &mixing})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Schedule(l, 0, 0)
		largest := 0
		for _, b := range s.Batches { // in tokens
			largest = max(largest, int(b.Count)*int(l[s.Samples(b)[0]]))
		}
		most := 0
		for _, b := range p.Bands {
			most = max(most, b.Batch*b.Upper)
		}
		if most > 2*largest || 2*most < largest {
			t.Errorf("mixing %v: batches of up to %d tokens printed, of up to %d made", mixing, most, largest)
		}
	}
}
