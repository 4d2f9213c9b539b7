package bucket

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// noisy is a machine of costA whose durations scatter by 5%.
type noisy struct{ r *rand.Rand }

func (n *noisy) Run(_ context.Context, length, batch int) (stepcost.Trial, error) {
	return stepcost.Trial{
		Seconds:     costA.Seconds(length, batch) * math.Exp(.05*n.r.NormFloat64()),
		OutOfMemory: batch > costA.Cap(length),
		PeakBytes:   int64(float64(length*batch) * (1 + float64(length)/costA.m)),
	}, nil
}

// With noise in the profile the plan is nearly as good, and its prediction nearly right.
func TestNoise(t *testing.T) {
	l := lognormal(100000, 400, .8, 4096)
	uppers, err := l.Uppers(32)
	if err != nil {
		t.Fatal(err)
	}
	speeds := slices.Repeat([]float64{1}, 8)
	mean := 0.0
	const seeds = 10
	for seed := range uint64(seeds) {
		n := &noisy{rand.New(rand.NewPCG(seed, 1))}
		table, err := stepcost.Profile(t.Context(), n, stepcost.Profiling{Lengths: uppers})
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
		p, err := Make(l, c, Config{Ranks: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Judge(l, p.Schedule(l, 1, 1).All(), costA, speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if worse, off := s.EpochSeconds/Bound(l, costA, speeds), p.EpochSeconds/s.EpochSeconds; worse > 1.02 || math.Abs(off-1) > .02 || s.OutOfMemory > 0 {
			t.Errorf("seed %d: %.4f of the bound, predicted %.4f of realised, %d out of memory", seed, worse, off, s.OutOfMemory)
		}
		mean += p.EpochSeconds / s.EpochSeconds / seeds
	}
	if math.Abs(mean-1) > .005 {
		t.Errorf("predicted %.4f of realised in the mean", mean)
	}
}
