package plain

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/invented"
	"evenkeel/bucket/stepcost"
)

// noisy is a machine of invented.A whose durations scatter by 5%.
type noisy struct{ r *rand.Rand }

func (n *noisy) run(_ context.Context, length, _, batch int) (stepcost.Trial, error) {
	return stepcost.Trial{
		Seconds:     invented.A.Seconds(length, batch) * math.Exp(.05*n.r.NormFloat64()),
		OutOfMemory: batch > invented.A.Cap(length),
		PeakBytes:   int64(float64(length*batch) * (1 + float64(length)/invented.A.Room)),
	}, nil
}

// With noise in the profile the plan is nearly as good, and its prediction nearly right.
func TestNoise(t *testing.T) {
	l := invented.Lognormal(100000, 400, .8, 4096)
	uppers, err := Uppers(l, 32)
	if err != nil {
		t.Fatal(err)
	}
	speeds := slices.Repeat([]float64{1}, 8)
	mean := 0.0
	const seeds = 10
	for seed := range uint64(seeds) {
		n := &noisy{rand.New(rand.NewPCG(seed, 1))}
		table, err := stepcost.Profile(t.Context(), n.run, stepcost.Profiling{Lengths: uppers})
		if err != nil {
			t.Fatal(err)
		}
		c, err := stepcost.New(table, 65536)
		if err != nil {
			t.Fatal(err)
		}
		if c.Smoothed() != "fit" {
			t.Errorf("seed %d: noise alone makes interpolation the better prediction", seed)
		}
		p, err := Make(l, c, bucket.Config{Ranks: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := bucket.Judge(l, p.Schedule(l, 1, 1).All(), invented.A, speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if worse, off := s.EpochSeconds/Bound(l, invented.A, speeds), p.EpochSeconds/s.EpochSeconds; worse > 1.02 || math.Abs(off-1) > .02 || s.OutOfMemory > 0 {
			t.Errorf("seed %d: %.4f of the bound, predicted %.4f of realised, %d out of memory", seed, worse, off, s.OutOfMemory)
		}
		mean += p.EpochSeconds / s.EpochSeconds / seeds
	}
	if math.Abs(mean-1) > .005 {
		t.Errorf("predicted %.4f of realised in the mean", mean)
	}
}

// odd is a device that pads lengths and computes batches in multiples.
type odd struct {
	invented.Formula
	pad, multiple int
}

func (o odd) rounded(l, n int) (int, int) {
	for l%o.pad != 0 {
		l++
	}
	for n%o.multiple != 0 {
		n++
	}
	return l, n
}

func (o odd) Seconds(l, n int) float64 {
	l, n = o.rounded(l, n)
	return o.Formula.Seconds(l, n)
}

func (o odd) Cap(l int) int {
	l, _ = o.rounded(l, 1)
	return o.Formula.Cap(l)
}

func (o odd) run(_ context.Context, l, _, n int) (stepcost.Trial, error) {
	if l%o.pad != 0 || n%o.multiple != 0 && o.Cap(l) >= o.multiple {
		return stepcost.Trial{}, fmt.Errorf("length %d, batch %d is no multiple", l, n)
	}
	return stepcost.Trial{Seconds: o.Seconds(l, n), OutOfMemory: n > o.Cap(l), PeakBytes: int64(float64(l*n) * (1 + float64(l)/o.Room))}, nil
}

// Profiled and planned with its multiples, such a device is predicted as well as any; without them it is not.
func TestMultiples(t *testing.T) {
	l := invented.Lognormal(50000, 400, .8, 4096)
	uppers, err := Uppers(l, 24)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []odd{{invented.A, 64, 1}, {invented.A, 1, 8}, {invented.A, 128, 4}} {
		table, err := stepcost.Profile(t.Context(), o.run, stepcost.Profiling{Lengths: uppers, MaxBatch: 1 << 16, PadTo: o.pad, BatchMultiple: o.multiple})
		if err != nil {
			t.Fatal(err)
		}
		c, err := stepcost.New(table, 65536)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []bool{true, false} {
			f := bucket.Config{Ranks: 8}
			if said {
				f.PadTo, f.BatchMultiple = o.pad, o.multiple
			}
			p, err := Make(l, c, f)
			if err != nil {
				t.Fatal(err)
			}
			s, err := bucket.Judge(l, p.Schedule(l, 1, 1).All(), o, p.Speeds, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			off := p.EpochSeconds/s.EpochSeconds - 1
			if said && (math.Abs(off) > .01 || s.OutOfMemory > 0) || !said && math.Abs(off) < .01 {
				t.Errorf("pad %d, multiple %d, said %v: predicted %.4f of real, %d out of memory", o.pad, o.multiple, said, 1+off, s.OutOfMemory)
			}
		}
	}
}
