package bucket

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
	"github.com/evenkeel/evenkeel/internal/race"
)

// A small epoch is within a hundredth of the best that steps of consecutive batches can be, found over all durations that a batch can have.
func TestStepDurations(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine; its numbers are judged without the race detector")
	}
	own, worst := 0, 0.0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := make(Lengths, 300+r.IntN(800))
		for i := range l {
			l[i] = uint32(5 + r.IntN(4+int(seed)) + r.IntN(12))
		}
		c, ranks := capped{formula{.02, .001, 0, math.Inf(1)}, 300 + r.IntN(900)}, 2+r.IntN(5)
		p, err := Make(l, c, Config{Ranks: ranks, Mixing: with(0)})
		if err != nil {
			t.Fatal(err)
		}
		if p.StepDurations {
			own++
		}
		least := consecutive(l, c, ranks)
		worst = max(worst, p.EpochSeconds/least)
		if p.EpochSeconds > least*1.01 {
			t.Errorf("seed %d: %d samples, %d ranks: %v s in %d steps, %v s are possible", seed, len(l), ranks, p.EpochSeconds, p.Steps, least)
		}
	}
	if own < 6 {
		t.Errorf("only %d of 8 epochs have steps with durations of their own", own)
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

// A plan never asks for more steps than there are samples: it could not be read again.
func TestMoreStepsThanSamples(t *testing.T) {
	var table stepcost.Table
	for _, n := range []int{5, 20, 35, 50, 80} {
		for _, b := range []int{1, 2, 4, 8} {
			table = append(table, stepcost.Trial{Length: n, Batch: b, Seconds: .1 + .011*float64(n*b), OutOfMemory: n > 20 || n*b > 160})
		}
	}
	c, err := stepcost.New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(Lengths{1, 3, 1, 4, 8}, c, Config{Speeds: []float64{1, 1.5}, Mixing: with(1)})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(&file, "plan.json"); err != nil {
		t.Error(err)
	}
}

// What plan prints of a small epoch, whose steps are shorter than the anchors, is what its batches are.
func TestBandsAreOfTheEpoch(t *testing.T) {
	l := make(Lengths, 600)
	for i := range l {
		l[i] = uint32(10 + i%90)
	}
	cost := formula{1e-9, .001, 0, math.Inf(1)} // next to nothing is fixed: short steps pad less
	for _, mixing := range []float64{0, .2} {
		p, err := Make(l, cost, Config{Ranks: 2, Mixing: &mixing})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Schedule(l, 0, 0)
		largest := 0
		for _, b := range s.Batches {
			largest = max(largest, int(b.Count))
		}
		most := 0
		for _, b := range p.Bands {
			most = max(most, b.Batch)
		}
		if most > 2*largest || 2*most < largest {
			t.Errorf("mixing %v: batches of up to %d printed, of up to %d made", mixing, most, largest)
		}
	}
}

// With few steps and slow ranks the size of the epoch jumps with the scale. No epoch is far from what was predicted of the first.
func TestFewSteps(t *testing.T) {
	for _, c := range []struct {
		samples int
		speeds  []float64
	}{{1000, []float64{.1, .3, .6, 1, 1.3}}, {1000, []float64{.1, 1.3}}, {4000, []float64{.1, .2, .4, .7, 1, 1.1, 1.2, 1.3}}} {
		s, g := translation(c.samples)
		pairs, err := NewPairs(s, g)
		if err != nil {
			t.Fatal(err)
		}
		two, err := MakePairs(pairs, costPairs, Config{Speeds: c.speeds})
		if err != nil {
			t.Fatal(err)
		}
		one, err := Make(s, longest{costPairs}, Config{Speeds: c.speeds})
		if err != nil {
			t.Fatal(err)
		}
		for k, p := range []*Plan{two, one} {
			l := []Lengths{pairs.Kinds, s}[k]
			for epoch := range uint64(30) {
				x, err := Judge(l, p.Schedule(l, 1, epoch).All(), p.Cost(), p.Speeds, 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				if x.EpochSeconds > 1.4*p.EpochSeconds {
					t.Errorf("%d samples, speeds %v, pairs %v, epoch %d: %.3f s in %d steps, predicted %.3f in %d", c.samples, c.speeds, p.Pairs, epoch, x.EpochSeconds, x.Steps, p.EpochSeconds, p.Steps)
				}
			}
		}
	}
}

// counted counts the questions to a cost.
type counted struct {
	seq2seq
	asked *int
}

func (c counted) Seconds(s, t, n int) float64 {
	*c.asked++
	return c.seq2seq.Seconds(s, t, n)
}

// The table of bands is of the epoch that was predicted, which is not cut again for it: its cost is asked once a batch.
func TestBandsCutNothing(t *testing.T) {
	s, g := translation(5000)
	pairs, err := NewPairs(s, g)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	p, err := MakePairs(pairs, counted{costPairs, &asked}, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	if p.last != nil {
		t.Error("the predicted epoch is kept")
	}
	p.predict(pairs.Kinds, pairs.Kinds.histogram())
	batches := len(p.last.batches)
	_, rate := efficient(p.hist, p.cost)
	asked = 0
	if again := p.pairBands(pairs.Kinds, rate); !slices.Equal(again, p.Bands) || asked != batches {
		t.Errorf("asked %d times about %d batches; bands %v, before %v", asked, batches, again, p.Bands)
	}
}
