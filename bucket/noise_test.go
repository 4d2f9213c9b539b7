package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/bucket/stepcost"
)

// trials times batches of 24 lengths with equal numbers of tokens.
func trials(l Lengths, c Cost, pad int, seconds func(length, batch int) float64) (t stepcost.Table) {
	hist := l.Histogram()
	rate := make([]float64, len(hist))
	for k := range rate {
		rate[k] = float64(k)
	}
	last := 0
	for _, length := range boundaries(hist, rate, 24) {
		if length = up(length, pad); length == last {
			continue
		}
		last = length
		most := c.Cap(length)
		batches := []int{1, most / 7, most / 5, most / 3, most / 2, 3 * most / 4, most}
		slices.Sort(batches)
		for _, n := range slices.Compact(batches) {
			if n > 0 {
				t = append(t, stepcost.Trial{Length: length, Batch: n, Seconds: seconds(length, n), PeakBytes: int64(float64(length*n) * (1 + float64(length)/A.Room))})
			}
		}
		t = append(t, stepcost.Trial{Length: length, Batch: most + 1, OutOfMemory: true})
	}
	return t
}

// With noise in the profile the plan is nearly as good, and its prediction nearly right.
func TestNoise(t *testing.T) {
	l := Lognormal(100000, 400, .8, 4096)
	exact, err := Make(l, A, Config{Ranks: 8})
	if err != nil {
		t.Fatal(err)
	}
	mean := 0.0
	const seeds = 10
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, err := stepcost.New(trials(l, A, 1, func(l, n int) float64 { return A.Seconds(l, n) * math.Exp(.05*r.NormFloat64()) }), 65536)
		if err != nil {
			t.Fatal(err)
		}
		if mean, worst := c.Error(); mean < .03 || mean > .05 || worst < .1 || worst > .25 {
			t.Errorf("seed %d: noise of 5%%; the fit is %v off, at worst %v", seed, mean, worst)
		}
		p, err := Make(l, c, Config{Ranks: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Judge(l, p.Schedule(l, 1, 1).All(), A, p.Speeds, 0)
		if err != nil {
			t.Fatal(err)
		}
		if worse, off := s.EpochSeconds/exact.LowerBoundSeconds, p.EpochSeconds/s.EpochSeconds; worse > 1.02 || math.Abs(off-1) > .02 || s.OutOfMemory > 0 {
			t.Errorf("seed %d: %.4f of the bound, predicted %.4f of realised, %d out of memory", seed, worse, off, s.OutOfMemory)
		}
		mean += p.EpochSeconds / s.EpochSeconds / seeds
	}
	if math.Abs(mean-1) > .005 {
		t.Errorf("predicted %.4f of realised in the mean", mean)
	}
}

// padder is a device that pads lengths.
type padder struct {
	Formula
	pad int
}

func (o padder) Seconds(l, n int) float64 { return o.Formula.Seconds(up(l, o.pad), n) }
func (o padder) Cap(l int) int            { return o.Formula.Cap(up(l, o.pad)) }

// Planned with its padding, such a device is predicted as well as any; without it is not.
func TestPadding(t *testing.T) {
	l := Lognormal(50000, 400, .8, 4096)
	o := padder{A, 128}
	c, err := stepcost.New(trials(l, o, o.pad, o.Seconds), 65536)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []int{o.pad, 0} {
		p, err := Make(l, c, Config{Ranks: 8, PadTo: said})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Judge(l, p.Schedule(l, 1, 1).All(), o, p.Speeds, 0)
		if err != nil {
			t.Fatal(err)
		}
		off := p.EpochSeconds/s.EpochSeconds - 1
		if said > 0 && (math.Abs(off) > .01 || s.OutOfMemory > 0) || said == 0 && math.Abs(off) < .01 {
			t.Errorf("pad to %d: predicted %.4f of real, %d out of memory", said, 1+off, s.OutOfMemory)
		}
	}
}
