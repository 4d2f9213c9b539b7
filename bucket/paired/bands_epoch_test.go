package paired

import (
	"slices"
	"testing"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/partition"
	"evenkeel/bucket/plain"
)

// With few steps and slow ranks the size of the epoch jumps with the scale. No epoch is far from what was predicted of the first.
func TestFewSteps(t *testing.T) {
	for _, c := range []struct {
		samples int
		speeds  []float64
	}{{1000, []float64{.1, .3, .6, 1, 1.3}}, {1000, []float64{.1, 1.3}}, {4000, []float64{.1, .2, .4, .7, 1, 1.1, 1.2, 1.3}}} {
		s, g := translation(c.samples)
		pairs, err := New(s, g)
		if err != nil {
			t.Fatal(err)
		}
		two, err := Make(pairs, costPairs, bucket.Config{Speeds: c.speeds})
		if err != nil {
			t.Fatal(err)
		}
		one, err := plain.Make(s, longest{costPairs}, bucket.Config{Speeds: c.speeds})
		if err != nil {
			t.Fatal(err)
		}
		for k, p := range []bucket.Planner{two, one} {
			l := []bucket.Lengths{pairs.Kinds, s}[k]
			for epoch := range uint64(30) {
				x, err := bucket.Judge(l, p.Schedule(l, 1, epoch).All(), p.Cost(), c.speeds, 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				if file := p.File(); x.EpochSeconds > 1.4*file.EpochSeconds {
					t.Errorf("%d samples, speeds %v, pairs %v, epoch %d: %.3f s in %d steps, predicted %.3f in %d", c.samples, c.speeds, file.Pairs, epoch, x.EpochSeconds, x.Steps, file.EpochSeconds, file.Steps)
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

// The table of bands is of the epoch that was predicted: its cost is asked once a batch.
func TestBandsCutNothing(t *testing.T) {
	s, g := translation(5000)
	pairs, err := New(s, g)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	p, err := Make(pairs, counted{costPairs, &asked}, bucket.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	e := p.dispatch(pairs.Kinds, p.newOrder(pairs.Kinds, 0, 0), p.Settings)
	_, rate := partition.Efficient(p.job.Hist, p.cost)
	asked = 0
	if again := p.bands(pairs.Kinds, rate, e); !slices.Equal(again, p.Bands) || asked != len(e.Batches) {
		t.Errorf("asked %d times about %d batches; bands %v, before %v", asked, len(e.Batches), again, p.Bands)
	}
}

func with(mixing float64) *float64 { return &mixing }
